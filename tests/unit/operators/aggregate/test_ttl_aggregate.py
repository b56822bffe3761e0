"""Rolling aggregates that forget keys, against a dictionary: undone, replayed, moved, restarted, beyond memory."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.call_counts import calls
from support.operators.keyed_cluster import NO_TIME, KeyedCluster, Times
from support.operators.record_work import RecordWork
from support.operators.ttl_scenario import Row, TimedRows, run_scenario
from tailrace.ids import Micros
from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput, Output
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.aggregate.ttl_aggregate import TtlAggregate
from tailrace.operators.registry import ingest_of
from tailrace.operators.resources import Resources
from tailrace.operators.timers.ttl import Clock, Ttl
from tailrace.operators.warm_up import warm_up
from tailrace.state.layout import Merge
from tailrace.types import BIGINT, TIMESTAMP, DataType, Field

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
TEXT = DataType("string")
KEYS = (Field("k", TEXT), Field("n", BIGINT))
TS, V, S = Field("ts", TIMESTAMP), Field("v", BIGINT), Field("s", TEXT)


def spec_of(clock: Clock, span: int = 10, shards: int = 3, keys: tuple[Field, ...] = KEYS) -> AggregateSpec:
    touched = Accumulator(Merge.MAX, AccumulatorInput.VALUE, "ts", TIMESTAMP)
    if clock is Clock.PROCESSING:
        touched = Accumulator(Merge.MAX, AccumulatorInput.STAMP, None, TIMESTAMP)
    return AggregateSpec(
        name="a",
        keys=keys,
        accumulators=(
            touched,
            Accumulator(Merge.ADD, AccumulatorInput.VALUE, "v", BIGINT),
            Accumulator(Merge.MAX, AccumulatorInput.VALUE, "s", TEXT),
        ),
        outputs=(Output("total", "sum", (1,), BIGINT), Output("most", "max", (2,), TEXT)),
        window=None,
        window_name="",
        window_position=0,
        time_column=TS if clock is Clock.EVENT else None,
        emit_changed=True,
        watermarked=clock is Clock.EVENT,
        ansi=True,
        shards=shards,
        ttl=Ttl(Micros(span), clock),
    )


class Model:
    """Key to (total, most, when it was last updated)."""

    def __init__(self, clock: Clock) -> None:
        self.processing = clock is Clock.PROCESSING
        self.keys: dict[Any, tuple[Any, Any, int]] = {}

    @property
    def kept(self) -> int:
        return len(self.keys)

    def epoch(self, rows: list[Row], times: Times) -> Counter[Any]:
        if self.processing:
            self._forget(times.forget_before)
        touched = set()
        for row in rows:
            if not self.processing and (row["ts"] is None or row["ts"] <= times.late_before):
                continue
            key = (row["k"], row["n"])
            total, most, updated = self.keys.get(key, (None, None, NO_TIME))
            total = total if row["v"] is None else (total or 0) + row["v"]
            strings = [s for s in (most, row["s"]) if s is not None]
            most = max(strings, key=str.encode, default=None)
            self.keys[key] = (total, most, times.now if self.processing else max(updated, row["ts"]))
            touched.add(key)
        emitted = Counter(repr((*key, *self.keys[key][:2])) for key in touched)
        if not self.processing:
            self._forget(times.forget_before)
        return emitted

    def _forget(self, before: int) -> None:
        self.keys = {key: value for key, value in self.keys.items() if value[2] > before}


def row_maker(rng: random.Random) -> Callable[[int], Row]:
    texts = ["", "a", "bee", None, "long " * 9]
    names = [(rng.choice(texts), rng.choice([0, 1, None])) for _ in range(rng.randint(1, 15))]

    def make(time: int) -> Row:
        return dict(
            zip(("k", "n"), rng.choice(names), strict=True),
            ts=rng.choice([None, *[time + rng.randint(-20, 3)] * 9]),
            v=rng.choice([None, rng.randint(-9, 9)]),
            s=rng.choice([None, "", "row", "é" * 20]),
        )

    return make


def run_aggregate(clock: Clock, seed: int, epochs: int) -> KeyedCluster:
    rng = random.Random(seed)
    span = rng.choice([0, 3, 10, 60])
    stream = TimedRows(clock, span, rng, row_maker(rng), late_by_watermark=False)
    return run_scenario(
        spec_of(clock, span, rng.choice([1, 3, 5])), (*KEYS, TS, V, S), stream, Model(clock), rng, epochs
    )


@pytest.mark.parametrize("clock", list(Clock))
@given(seed=st.integers(0, 2**48))
@settings(max_examples=300 if LONG else 15)
def test_keys_are_forgotten_as_in_a_dictionary(clock: Clock, seed: int) -> None:
    run_aggregate(clock, seed, epochs=14)


def test_scenarios_spill_to_disk() -> None:
    assert any(run_aggregate(clock, seed, epochs=8).wrote_segments for seed in range(4) for clock in Clock)


@pytest.mark.parametrize("clock", list(Clock))
@pytest.mark.parametrize("memory_bytes", [1 << 20, 1 << 28])
def test_forgetting_costs_what_is_forgotten(
    clock: Clock, memory_bytes: int, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred keys expire in each of some epochs, out of 2,000 or of 40,000 that are kept: the work is the same."""
    done = [_work_of(clock, kept, memory_bytes, str(tmp_path), monkeypatch) for kept in (2_000, 40_000)]
    few, many = done
    assert many <= 2 * few + 200, f"records touched with 2,000 and with 40,000 kept: {done}"


@pytest.mark.parametrize("clock", list(Clock))
def test_a_key_that_is_touched_again_and_again_is_waited_for_once(clock: Clock, tmp_path: object) -> None:
    """On disk or in memory, where its record is brought in from there for each touch."""
    operator = TtlAggregate(_many(clock), range(4), Resources(threads=1, memory_bytes=0, folder=str(tmp_path)))
    for number in range(30):
        run_epoch(operator, number, np.arange(200), number, number - 20)
        assert operator.rows == 200 and operator.disk_bytes
        assert len(operator._expiry.deadlines) == 200
    run_epoch(operator, 30, np.arange(0), 30, 29)
    assert operator.rows == len(operator._expiry.deadlines) == 0
    operator.close()


@pytest.mark.parametrize("clock", list(Clock))
def test_ten_times_the_keys_need_no_more_calls_of_python(clock: Clock, tmp_path: object) -> None:
    """Half of the keys are touched in the epoch that is counted, and the others are forgotten."""
    warm_up()

    def of(keys: int) -> Counter[str]:
        operator = TtlAggregate(_many(clock), range(4), Resources(1 << 28, str(tmp_path), threads=1))
        run_epoch(operator, 0, np.arange(keys), 0, NO_TIME)
        run_epoch(operator, 1, np.arange(keys // 2), 30, NO_TIME)
        found = calls(lambda: run_epoch(operator, 2, np.arange(keys // 2), 50, 20))
        assert operator.rows == keys // 2
        operator.close()
        return found

    few, many = of(400), of(4_000)
    assert few == many, f"calls that grow with the keys: {many - few}"


def _many(clock: Clock) -> AggregateSpec:
    return spec_of(clock, 1000, 4, (Field("n", BIGINT),))


def run_epoch(operator: TtlAggregate, number: int, keys: np.ndarray, time: int, forget_before: int) -> None:
    """One row for each key, all at one time."""
    batch = pa.RecordBatch.from_pydict(
        {
            "n": pa.array(keys, pa.int64()),
            "ts": pa.array(np.full(len(keys), time), pa.timestamp("us", "UTC")),
            "v": pa.array(keys, pa.int64()),
            "s": pa.array(np.full(len(keys), "text")),
        }
    )
    ingest = ingest_of(operator.spec, NO_TIME, False, {"n": BIGINT, "ts": TIMESTAMP, "v": BIGINT, "s": TEXT})
    operator.set_times(time, forget_before)
    operator.apply(number, [ingest.frame([batch])])
    operator.advance(number, NO_TIME, NO_TIME)
    operator.delta(number)
    operator.forget(number)


def _work_of(clock: Clock, kept: int, memory_bytes: int, folder: str, monkeypatch: pytest.MonkeyPatch) -> int:
    operator = TtlAggregate(_many(clock), range(4), Resources(threads=1, memory_bytes=memory_bytes, folder=folder))
    for number in range(10):  # of each of the first epochs a hundred keys, which nobody touches again
        run_epoch(operator, number, np.arange(100 * number, 100 * number + 100), number, NO_TIME)
    run_epoch(operator, 10, np.arange(1000, 1000 + kept), 5000, NO_TIME)
    if memory_bytes < 1 << 24 and kept > 10_000:
        assert operator.disk_bytes > 1 << 20, "nothing lies on disk"
    with monkeypatch.context() as patch:
        work = RecordWork(patch)
        moved, looked = operator._expiry.deadlines.moved, operator._expiry.looked
        for number in range(11, 16):
            before = operator.rows
            run_epoch(operator, number, np.arange(0), 5000, number - 11)
            assert operator.rows == before - 100
        total = work.records + operator._expiry.deadlines.moved - moved + operator._expiry.looked - looked
    operator.close()
    return total
