"""Replaying traces: every way through a trace gives the right answers, and its numbers are what they say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tailrace.cli import app
from tailrace.errors import TailraceError
from tailrace.lab.gadget.generate import generate, trace_of
from tailrace.lab.gadget.replay.bench import GadgetOptions, chosen, run_gadget
from tailrace.lab.gadget.replay.prepared import Prepared, WrongAnswerError, prepare
from tailrace.lab.gadget.replay.replay import (
    How,
    Latencies,
    harness_ns,
    latencies,
    online,
    opened,
    throughput,
    together,
)
from tailrace.lab.gadget.stores.contract import Batch, Settings, Values
from tailrace.lab.gadget.stores.plain import DictionaryStore
from tailrace.lab.gadget.stores.registry import STORES
from tailrace.lab.gadget.traces.trace import Trace, joined, write_trace
from tailrace.lab.gadget.workloads import WORKLOADS

QUICK = ("dictionary", "hash-log", "sqlite", "tailrace-rmw", "tailrace-aar", "tailrace-aur")


@pytest.fixture(scope="module")
def small() -> Prepared:
    return prepare(trace_of("session-holistic", "borg", events=500))


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_workload_has_right_answers_on_our_stores(workload: str, tmp_path: Path) -> None:
    """Sizes that cut windows and sessions in pieces; and memory that holds a part of the state."""
    prepared = prepare(trace_of(workload, "borg", events=1_500))
    for name in ("tailrace-rmw", "tailrace-aar", "tailrace-aur", "hash-log"):
        for how in (How(777), How(10**6), How(500, memory_bytes=1 << 16)):
            with opened(STORES[name], prepared, how, tmp_path) as store:
                done = throughput(store, prepared, how)
            assert done.accesses == len(prepared)


def test_single_calls_micro_batches_and_pieces_all_go_through_the_trace(small: Prepared, tmp_path: Path) -> None:
    for name in ("dictionary", "rocksdb", "lmdb"):
        for how in (How(), How(100)):
            with opened(STORES[name], small, how, tmp_path) as store:
                assert throughput(store, small, how).accesses == len(small)
        with opened(STORES[name], prepare(joined([])), How(100), tmp_path) as store:
            assert online(store, generate("session-holistic", "borg", 500), How(100)).accesses == len(small)
    assert not list(tmp_path.iterdir())  # nothing is left of a store


def test_records_that_are_there_from_the_start_are_found(tmp_path: Path) -> None:
    trace = replace(trace_of("aggregation", "borg", events=100), metadata={"preloaded": "true"})
    prepared = prepare(trace)
    assert (prepared.expected.sizes > 0).all()  # the first get of a key finds something
    for name in ("dictionary", "tailrace-rmw"):
        for how in (How(), How(30)):
            with opened(STORES[name], prepared, how, tmp_path) as store:
                assert throughput(store, prepared, how).accesses == len(trace)


def test_a_pass_ends_after_its_time(small: Prepared, tmp_path: Path) -> None:
    how = How(10, seconds=0)
    with opened(DictionaryStore, small, how, tmp_path) as store:
        assert throughput(store, small, how).accesses == 10


def test_a_service_rate_holds_calls_back(small: Prepared, tmp_path: Path) -> None:
    for batch in (None, 50):
        how = How(batch, rate=len(small) / 0.2)
        with opened(DictionaryStore, small, how, tmp_path) as store:
            assert throughput(store, small, how).seconds >= 0.19
    for wrong in ({"rate": 0.0}, {"rate": float("nan")}, {"batch": 0}):
        with pytest.raises(TailraceError, match="makes no sense"):
            How(**wrong)  # type: ignore[arg-type]


def test_latencies_have_one_value_an_access(small: Prepared, tmp_path: Path) -> None:
    for how in (How(), How(100)):
        with opened(DictionaryStore, small, how, tmp_path) as store:
            us = latencies(store, small, how).us
        assert list(us) == ["p50", "p99", "p99.9", "mean", "max"]
        assert 0 < us["p50"] <= us["p99"] <= us["p99.9"] <= us["max"]
    assert Latencies.of(np.arange(1, 100_002) * 1000).us["p99.9"] == pytest.approx(99_901)
    assert 0 < harness_ns(small, How()) < 1e6


@pytest.mark.parametrize("name", ("rocksdb", "lmdb", "tailrace-rmw", "dictionary"))
@pytest.mark.parametrize("batch", (None, 50))
def test_operators_on_one_store_do_not_see_each_other(name: str, batch: int | None, tmp_path: Path) -> None:
    traces = [trace_of(one, "borg", events=60) for one in ("tumbling-incremental", "sliding-holistic")]
    first = prepare(traces[0])
    operators = [first, prepare(traces[1], first_key=first.trace.distinct_keys)]
    with opened(STORES[name], operators[1], How(batch), tmp_path) as store:
        found = together(store, operators, How(batch))
    assert [done.accesses for done, _ in found] == [len(one) for one in operators]


class _Forgetful(DictionaryStore):
    name = "forgetful"

    def put(self, key: bytes, value: bytes) -> None:
        pass

    def run(self, batch: Batch) -> Values:
        gets = int((batch.operations == 0).sum())
        return Values(np.full(gets, -1), np.empty(0, np.uint8))


def test_a_store_that_forgets_is_found_out(tmp_path: Path) -> None:
    prepared = prepare(trace_of("aggregation", "borg", events=300))
    for how in (How(), How(50)):
        with opened(_Forgetful, prepared, how, tmp_path) as store, pytest.raises(WrongAnswerError, match="forgetful"):
            throughput(store, prepared, how)
    with pytest.raises(WrongAnswerError):
        together(_Forgetful(Settings(tmp_path)), [prepared], How())


class _Stale(DictionaryStore):
    """Answers right until a key is put a second time."""

    name = "stale"

    def put(self, key: bytes, value: bytes) -> None:
        if self.get(key) is None:
            super().put(key, value)


class _Lossy(DictionaryStore):
    """Merges nothing to keys that nobody has read yet: what is never read is never missed."""

    name = "lossy"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._read: set[bytes] = set()

    def get(self, key: bytes) -> bytes | None:
        self._read.add(key)
        return super().get(key)

    def merge(self, key: bytes, value: bytes) -> None:
        if key in self._read:
            super().merge(key, value)


class _Undead(DictionaryStore):
    name = "undead"

    def delete(self, key: bytes) -> None:
        pass


class _Short(DictionaryStore):
    """Leaves answers out."""

    name = "short"

    def run(self, batch: Batch) -> Values | list[bytes | None]:
        found = super().run(batch)
        assert isinstance(found, list)
        return found[:-1]


@pytest.mark.parametrize("how", (How(), How(50)), ids=("scalar", "batch"))
@pytest.mark.parametrize(
    ("kind", "accesses"),
    (
        (_Stale, [(1, 0), (1, 0), (0, 0)]),
        (_Stale, [(1, 0), (1, 0)]),
        (_Lossy, [(1, 0), (0, 0), (2, 1), (2, 1)]),
        (_Undead, [(1, 0), (3, 0), (0, 0)]),
        (_Undead, [(1, 0), (3, 0)]),
        (_Forgetful, [(1, 0)]),
    ),
)
def test_stores_that_lie_are_found_out(
    kind: type[DictionaryStore], accesses: list[tuple[int, int]], how: How, tmp_path: Path
) -> None:
    """Also where no access of the trace reads what is wrong."""
    prepared = prepare(_trace(accesses))
    with opened(DictionaryStore, prepared, how, tmp_path) as store:
        throughput(store, prepared, how)
    for measured in (throughput, latencies, lambda store, one, how: together(store, [one], how)):
        with opened(kind, prepared, how, tmp_path) as store, pytest.raises(WrongAnswerError, match=kind.name):
            measured(store, prepared, how)  # type: ignore[operator]
    with opened(kind, prepared, how, tmp_path) as store, pytest.raises(WrongAnswerError, match=kind.name):
        online(store, [prepared.trace], how)


def test_answers_that_are_left_out_are_missed(tmp_path: Path) -> None:
    prepared = prepare(_trace([(1, 0), (0, 0)]))
    with opened(_Short, prepared, How(50), tmp_path) as store, pytest.raises(WrongAnswerError, match="1 were asked"):
        throughput(store, prepared, How(50))


def _trace(accesses: list[tuple[int, int]]) -> Trace:
    operations = np.array([operation for operation, _ in accesses], np.uint8)
    sizes = np.where((operations == 1) | (operations == 2), 10, 0).astype(np.int32)
    return Trace(operations, np.array([key for _, key in accesses]), sizes, np.zeros(len(accesses), np.int64))


def test_a_bench_has_every_store_in_every_cell(tmp_path: Path) -> None:
    options = GadgetOptions(
        ("aggregation", "tumbling-join"), QUICK, accesses=3_000, scalar_accesses=50, batch=1_000, rounds=2
    )
    steps: list[tuple[int, int]] = []
    result = run_gadget(options, tmp_path, lambda what, done, of: steps.append((done, of)))
    for mode in ("batch", "scalar"):
        assert {name: set(row) for name, row in result[mode].items()} == {key: set(QUICK) for key in options.workloads}
        assert all(rate > 0 for row in result[mode].values() for rate in row.values())
    assert result["chosen"] == {"aggregation": "tailrace-rmw", "tumbling-join": "tailrace-aar"}
    assert set(result["first"]) == set(options.workloads) and set(result["lead"]) == set(options.workloads)
    assert steps[-1][0] == steps[-1][1] and steps == sorted(steps)
    assert {chosen(name) for name in WORKLOADS} == {"tailrace-rmw", "tailrace-aar", "tailrace-aur"}
    wrong = replace(options, workloads=("tumbling",))
    with pytest.raises(TailraceError, match="no workload is called 'tumbling'"):
        run_gadget(wrong, tmp_path, lambda *_: None)


def test_commands(tmp_path: Path) -> None:
    run = CliRunner().invoke
    records = ["--records", str(tmp_path / "records")]
    trace = tmp_path / "trace.parquet"
    write_trace(trace, trace_of("tumbling-incremental", "borg", events=200))
    small = ["--accesses", "500", "--scalar-accesses", "20", "--rounds", "1", "--batch", "100"]
    result = run(
        app, ["gadget", "bench", "--workloads", "aggregation", "--stores", "dictionary,hash-log", *small, *records]
    )
    assert result.exit_code == 0, result.output
    last = json.loads(result.stdout.splitlines()[-1])
    assert set(last["batch"]["aggregation"]) == set(last["scalar"]["aggregation"]) == {"dictionary", "hash-log"}
    for more in (["--batch", "50"], ["--rate", "1M"], ["--with", str(trace)]):
        result = run(app, ["gadget", "replay", str(trace), "--store", "sqlite", *more, *records])
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout.splitlines()[-1])["store"] == "sqlite"
    result = run(app, ["gadget", "replay", "aggregation", "--events", "200", "--store", "dictionary", *records])
    assert json.loads(result.stdout.splitlines()[-1])["online"] is True
    assert len(list((tmp_path / "records").iterdir())) == 5
    for wrong, why in (
        (["gadget", "bench"], "--all"),
        (["gadget", "bench", "--all", "--stores", "nosql"], "nosql"),
        (["gadget", "bench", "--all", "--accesses", "many"], "many"),
    ):
        result = run(app, wrong)
        assert result.exit_code == 2 and why in result.output


@pytest.mark.long
def test_all_workloads_on_all_stores(tmp_path: Path) -> None:
    result = run_gadget(GadgetOptions(accesses=5_000, scalar_accesses=500, rounds=1), tmp_path, lambda *_: None)
    assert set(result["batch"]) == set(WORKLOADS)
    assert set(result["memory"]) | set(result["absent"]) == set(STORES)
