"""Rows that a task leaves out are handed out whole: no row of a batch is lost, and none comes twice."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.operators.join_inputs import SPECS, both_sides
from support.operators.session_scenario import TYPES, batch_of
from tailrace.ids import Micros
from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput, Output
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.ingest.event_time import IngestCounts
from tailrace.operators.ingest.late_rows import late_columns
from tailrace.operators.join.spec import LEFT, RIGHT, JoinKind
from tailrace.operators.registry import ingest_of
from tailrace.operators.spec import OperatorSpec
from tailrace.operators.windows.session_window import SessionWindowSpec
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.state.layout import Merge
from tailrace.types import BIGINT, TIMESTAMP, DataType, Field


class Taker:
    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def take(self, rows: pa.RecordBatch) -> None:
        assert len(rows)
        self.batches.append(rows)

    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in self.batches for row in batch.to_pylist()]


def aggregate(**more: Any) -> AggregateSpec:
    return AggregateSpec(
        name="a",
        keys=(Field("k", DataType("string")),),
        accumulators=(Accumulator(Merge.ADD, AccumulatorInput.ONE, None, BIGINT),),
        outputs=(Output("n", "count", (0,), BIGINT),),
        window_name="window",
        window_position=0,
        time_column=Field("ts", TIMESTAMP),
        emit_changed=False,
        watermarked=True,
        ansi=True,
        shards=4,
        **{"window": None, **more},
    )


WINDOWED = aggregate(window=TimeWindowSpec(Micros(20), Micros(10), Micros(3)))
SESSIONS = aggregate(window=SessionWindowSpec(Micros(10)))
KEPT = aggregate(
    window=TimeWindowSpec(Micros(10), Micros(10), Micros(0)), rows=(Field("v", BIGINT), Field("s", TYPES["s"]))
)


def last_end(spec: AggregateSpec, time: int) -> int:
    """When the last window that holds the time ends: by trying them all."""
    window = spec.window
    if isinstance(window, SessionWindowSpec):
        return time + window.gap
    assert isinstance(window, TimeWindowSpec)
    starts = (window.offset + k * window.slide for k in range(-100, 100))
    return max(start + window.size for start in starts if start <= time < start + window.size)


@pytest.mark.parametrize("spec", [WINDOWED, SESSIONS, KEPT], ids=["windows", "sessions", "whole rows"])
@given(seed=st.integers(0, 2**48))
@settings(max_examples=40)
def test_every_row_is_ingested_or_handed_out(spec: AggregateSpec, seed: int) -> None:
    rng = random.Random(seed)
    times = [rng.choice([None, rng.randint(-90, 90)]) for _ in range(rng.randint(0, 30))]
    rows: list[Any] = [(rng.choice([None, "a", "ß"]), t, at, rng.choice([None, "x"])) for at, t in enumerate(times)]
    watermark = rng.randint(-60, 60)
    taker, ingest = Taker(), ingest_of(spec, watermark, False, TYPES)
    ingest.counts.late_taker = taker
    batch = batch_of(rows)
    cut = rng.randint(0, len(rows))
    kept = sum(ingest.frame([part]).n for part in (batch[:cut], batch[cut:]))
    reasons = ["no event time" if t is None else "late" if last_end(spec, t) <= watermark else "" for t in times]
    want = [
        {**row, "tailrace_reason": reason} for row, reason in zip(batch.to_pylist(), reasons, strict=True) if reason
    ]
    assert taker.rows() == want
    assert kept == len(rows) - len(want)
    counts = ingest.counts
    assert (counts.late_rows, counts.null_time_rows) == (reasons.count("late"), reasons.count("no event time"))


def test_rows_of_a_join_tell_their_side() -> None:
    second = 1_000_000
    spec: OperatorSpec = SPECS["interval"]
    assert SPECS["interval"].kind is JoinKind.INTERVAL
    taker, ingest = Taker(), ingest_of(spec, 10 * second, False, {})
    ingest.counts.late_taker = taker
    batch = both_sides([5 * second, 15 * second, None, 9 * second], [LEFT, LEFT, RIGHT, RIGHT], [1, 2, 3, 4])
    assert ingest.frame([batch]).n == 1
    rows = taker.rows()
    assert [(row["tailrace_side"], row["k"], row["tailrace_reason"]) for row in rows] == [
        ("left", 1, "late"),
        ("right", 3, "no event time"),
        ("right", 4, "late"),
    ]
    assert (rows[0]["a"], rows[0]["b"], rows[2]["a"], rows[2]["b"]) == ("row 0", None, None, 3)
    assert list(rows[0]) == ["tailrace_side", "k", "a", "until", "b", "tailrace_reason"]
    assert list(rows[0]) == late_columns(batch.schema.names)


def test_nothing_is_collected_where_no_row_is_left_out() -> None:
    taker = Taker()
    counts = IngestCounts(late_taker=taker)
    ingest = ingest_of(WINDOWED, 0, False, TYPES)
    ingest.counts = counts
    assert ingest.frame([batch_of([("a", 5, 1, None)])]).n == 1
    assert taker.batches == []
