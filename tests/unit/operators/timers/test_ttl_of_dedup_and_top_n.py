"""The best rows of groups, and keys without duplicates, that are forgotten: against dictionaries, undone, replayed,
moved, restarted, beyond memory; and what forgetting costs.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.call_counts import calls
from support.models.top_n import TopNModel
from support.operators.keyed_cluster import NO_TIME, Times
from support.operators.record_work import RecordWork
from support.operators.ttl_rows import COLUMNS, TS, K, N, S, V, row_maker
from support.operators.ttl_scenario import Row, TimedRows, run_scenario
from tailrace.ids import Micros
from tailrace.operators.dedup.spec import DeduplicateSpec, Memory
from tailrace.operators.registry import ingest_of, operator_of
from tailrace.operators.timers.ttl import Clock, Ttl
from tailrace.operators.top_n.spec import Order, TopNSpec
from tailrace.operators.warm_up import warm_up
from tailrace.types import Field

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
Group = tuple[Any, ...]


def top_of(
    clock: Clock, span: int, n: int = 2, shards: int = 3, keys: tuple[Field, ...] = (K, N), timed: bool = True
) -> TopNSpec:
    event = clock is Clock.EVENT
    return TopNSpec(
        name="t",
        keys=keys,
        rows=(V, S, *((TS,) if timed and TS not in keys else ())),
        shown=("s", "v"),
        order=(Order("v", False),),
        n=n,
        rank="rank",
        window=None,
        window_name="",
        window_position=0,
        time_column=TS if timed else None,
        emit_changed=True,
        watermarked=event,
        shards=shards,
        ttl=Ttl(Micros(span), clock),
    )


class BestRows:
    """All rows of each group, and when one came last; groups that are idle go."""

    def __init__(self, spec: TopNSpec) -> None:
        assert spec.ttl is not None
        self.processing = spec.ttl.clock is Clock.PROCESSING
        self.model = TopNModel(spec)
        self.updated: dict[Group, int] = {}

    @property
    def kept(self) -> int:
        return len(self.updated)

    def epoch(self, rows: list[Row], times: Times) -> Counter[Any]:
        if self.processing:
            self._forget(times.forget_before)
        else:
            rows = [row for row in rows if row["ts"] is not None and row["ts"] > times.late_before]
        changes = self.model.epoch(rows, NO_TIME)
        for row in rows:
            group = (None, *(row[key.name] for key in self.model.spec.keys))
            time = times.now if self.processing else row["ts"]
            self.updated[group] = max(time, self.updated.get(group, NO_TIME))
        emitted: Counter[Any] = Counter()
        for group, (before, now) in changes.items():
            if [*map(repr, before)] != [*map(repr, now)]:
                emitted.update(self.model.shown(group, now))
        if not self.processing:
            self._forget(times.forget_before)
        return emitted

    def _forget(self, before: int) -> None:
        for group in [group for group, time in self.updated.items() if time <= before]:
            del self.updated[group], self.model.rows[group]


def run_top_n(clock: Clock, seed: int, epochs: int) -> Any:
    rng = random.Random(seed)
    span, timed = rng.choice([1, 3, 10, 60]), clock is Clock.EVENT or rng.random() < 0.5
    keys = rng.choice([(K, N), (K, N), (K,), (), (TS, N)]) if timed else rng.choice([(K, N), ()])
    spec = top_of(clock, span, rng.choice([1, 2, 9]), rng.choice([1, 3, 5]), keys, timed)
    stream = TimedRows(clock, span, rng, row_maker(rng), late_by_watermark=False)
    return run_scenario(spec, COLUMNS, stream, BestRows(spec), rng, epochs)


@pytest.mark.parametrize("clock", list(Clock))
@given(seed=st.integers(0, 2**48))
@settings(max_examples=300 if LONG else 7, deadline=None, print_blob=True)
def test_groups_are_forgotten_with_their_best_rows(clock: Clock, seed: int) -> None:
    run_top_n(clock, seed, epochs=12)


def test_scenarios_spill_to_disk() -> None:
    assert any(run_top_n(clock, seed, epochs=8).wrote_segments for seed in range(3) for clock in Clock)


def duplicates_of(span: int, watermarked: bool, keys: tuple[Field, ...], shards: int) -> DeduplicateSpec:
    spec = DeduplicateSpec(
        name="d",
        keys=keys,
        columns=COLUMNS,
        time_column=TS if watermarked else None,
        watermarked=watermarked,
        within=False,
        delay=Micros(3),
        handed_over=False,
        shards=shards,
        ttl=Ttl(Micros(span), Clock.PROCESSING),
    )
    assert spec.memory is Memory.SINCE
    return spec


class FirstRows:
    """Key to the time of the epoch in which its row was given."""

    kept = None  # keys that are forgotten stay until their pane goes

    def __init__(self, spec: DeduplicateSpec) -> None:
        self.spec = spec
        self.given: dict[Group, int] = {}

    def epoch(self, rows: list[Row], times: Times) -> Counter[Any]:
        self.given = {key: time for key, time in self.given.items() if time > times.forget_before}
        if self.spec.watermarked:
            rows = [row for row in rows if row["ts"] is None or row["ts"] > times.late_before]
            rows = sorted(rows, key=lambda row: (row["ts"] is None, row["ts"] or 0))
        emitted: Counter[Any] = Counter()
        for row in rows:
            key = tuple(row[field.name] for field in self.spec.keys)
            if key not in self.given:
                self.given[key] = times.now
                emitted[repr(tuple(row.values()))] += 1
        return emitted


SECOND = 1_000_000
"""Panes are at least so wide: shorter times-to-live forget what is still there."""


def run_dedup(seed: int, epochs: int) -> Any:
    rng = random.Random(seed)
    span = rng.choice([1, 10, 3 * SECOND, 40 * SECOND])
    keys = rng.choice([(K, N), (N,), (K, TS)])
    spec = duplicates_of(span, rng.random() < 0.5, keys, rng.choice([1, 3, 5]))
    stream = TimedRows(Clock.PROCESSING, span, rng, row_maker(rng), late_by_watermark=True)
    real, step = stream.times, rng.choice([1, SECOND // 3, 5 * SECOND])

    def times(rows: list[Row]) -> Times:
        stream.now += step * rng.randint(0, 3)
        return real(rows)

    stream.times = times  # type: ignore[method-assign]
    return run_scenario(spec, COLUMNS, stream, FirstRows(spec), rng, epochs)


@given(seed=st.integers(0, 2**48))
@settings(max_examples=300 if LONG else 8, deadline=None, print_blob=True)
def test_keys_are_remembered_for_their_time(seed: int) -> None:
    run_dedup(seed, epochs=12)


def test_keys_go_with_their_panes(tmp_path: Any) -> None:
    """Whatever comes meanwhile, no more keys lie there than came in the time-to-live and a pane more."""
    spec = duplicates_of(8 * SECOND, False, (N,), 4)
    operator: Any = operator_of(spec, range(4), memory_bytes=0, folder=str(tmp_path))
    for number in range(40):
        now = 1_000 * SECOND + number * SECOND
        run_epoch(operator, spec, number, np.arange(100 * number, 100 * number + 100), 0, now, now - 8 * SECOND)
        assert operator.rows <= 100 * (8 + 2 + 1)
        assert operator.rows >= 100 * min(number + 1, 8)
    assert operator.disk_bytes
    operator.close()


# What forgetting costs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clock", list(Clock))
@pytest.mark.parametrize("memory_bytes", [1 << 20, 1 << 28])
def test_forgetting_costs_what_is_forgotten(
    clock: Clock, memory_bytes: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred groups expire in each of some epochs, out of 1,000 or of 20,000 that are kept: the work is the same."""
    few, many = (_work_of(clock, kept, memory_bytes, str(tmp_path), monkeypatch) for kept in (1_000, 20_000))
    assert many <= 2 * few + 200, f"records touched with 1,000 and with 20,000 kept: {few}, {many}"


def _work_of(clock: Clock, kept: int, memory_bytes: int, folder: str, monkeypatch: pytest.MonkeyPatch) -> int:
    spec = top_of(clock, 1000, 2, 4, (N,))
    operator: Any = operator_of(spec, range(4), memory_bytes=memory_bytes, folder=folder)
    for number in range(5):  # of each of the first epochs a hundred groups, which nobody touches again
        run_epoch(operator, spec, number, np.arange(100 * number, 100 * number + 100), number, number, NO_TIME)
    run_epoch(operator, spec, 5, np.arange(1000, 1000 + kept), 5000, 5000, NO_TIME)
    if memory_bytes < 1 << 24 and kept > 10_000:
        assert operator.disk_bytes > 1 << 20, "nothing lies on disk"
    with monkeypatch.context() as patch:
        work, expiry = RecordWork(patch), operator._expiry
        moved, looked = expiry.deadlines.moved, expiry.looked
        for number in range(6, 11):
            before = operator.rows
            run_epoch(operator, spec, number, np.arange(0), 5000, 5000, number - 6)
            assert operator.rows == before - 100
        total = work.records + expiry.deadlines.moved - moved + expiry.looked - looked
    operator.close()
    return int(total)


@pytest.mark.parametrize("clock", list(Clock))
@pytest.mark.parametrize("memory_bytes", [0, 1 << 28])
def test_touching_a_group_makes_no_second_deadline(clock: Clock, memory_bytes: int, tmp_path: Any) -> None:
    spec = top_of(clock, 1000, 2, 4, (N,))
    operator: Any = operator_of(spec, range(4), memory_bytes=memory_bytes, folder=str(tmp_path))
    for number in range(3):  # with no memory, the groups are on disk each time
        run_epoch(operator, spec, number, np.arange(500), 10 * number, 10 * number, NO_TIME)
    looked = []
    for number, forget in ((3, 5), (4, 15), (5, 25)):
        before = operator._expiry.looked
        run_epoch(operator, spec, number, np.arange(0), 30, 30, forget)
        looked.append(operator._expiry.looked - before)
    assert looked == [500, 0, 500] and operator.rows == 0
    operator.close()


@pytest.mark.parametrize("clock", list(Clock))
def test_ten_times_the_groups_need_no_more_calls_of_python(clock: Clock, tmp_path: Any) -> None:
    """Half of the groups are touched in the epoch that is counted, and the others are forgotten."""
    warm_up()

    def of(keys: int) -> Counter[str]:
        spec = top_of(clock, 1000, 2, 4, (N,))
        operator: Any = operator_of(spec, range(4), memory_bytes=1 << 28, folder=str(tmp_path))
        run_epoch(operator, spec, 0, np.arange(keys), 0, 0, NO_TIME)
        run_epoch(operator, spec, 1, np.arange(keys // 2), 30, 30, NO_TIME)
        found = calls(lambda: run_epoch(operator, spec, 2, np.arange(keys // 2), 50, 50, 20))
        assert operator.rows == keys // 2
        operator.close()
        return found

    few, many = of(400), of(4_000)
    assert few == many, f"calls that grow with the groups: {many - few}"


def run_epoch(operator: Any, spec: Any, number: int, keys: np.ndarray, time: int, now: int, forget: int) -> None:
    """One row for each key, all at one time."""
    batch = pa.RecordBatch.from_pydict(
        {
            "k": pa.array(np.full(len(keys), "key")),
            "n": pa.array(keys, pa.int64()),
            "ts": pa.array(np.full(len(keys), time), pa.timestamp("us", "UTC")),
            "v": pa.array(keys, pa.int64()),
            "s": pa.array(np.full(len(keys), "text")),
        }
    )
    ingest = ingest_of(spec, NO_TIME, True, {field.name: field.type for field in COLUMNS})
    operator.set_times(now, forget)
    operator.apply(number, [ingest.frame([batch])])
    operator.advance(number, NO_TIME, NO_TIME)
    operator.delta(number)
    operator.forget(number)
