"""What passes from one operator to the next: in an order that depends on the rows alone."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from tailrace.ids import Micros
from tailrace.operators import output as operator_output
from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput, Output
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.exchange import in_fixed_order
from tailrace.operators.output import output_pieces, output_schema
from tailrace.operators.top_n.spec import Order, TopNSpec
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.state.layout import Merge
from tailrace.state.rows.rows import Rows
from tailrace.types import DOUBLE, TIMESTAMP, DataType, Field

SPEC = AggregateSpec(
    name="first",
    keys=(Field("k", DataType("string")),),
    accumulators=(Accumulator(Merge.ADD, AccumulatorInput.DOUBLE, "x", DOUBLE),),
    outputs=(Output("x", "max", (0,), DOUBLE),),
    window=TimeWindowSpec(Micros(10), Micros(10), Micros(0)),
    window_name="window",
    window_position=0,
    time_column=Field("ts", TIMESTAMP),
    emit_changed=False,
    watermarked=True,
    ansi=True,
    shards=8,
)


def output(rows: list[tuple[int, str | None, float]]) -> pa.RecordBatch:
    made = [{"window": {"start": start, "end": start + 10}, "k": k, "x": x} for start, k, x in rows]
    return pa.RecordBatch.from_pylist(made, schema=output_schema(SPEC))


def test_the_order_does_not_depend_on_how_rows_came() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    rows = [(10 * window, key, rng.random()) for window in range(4) for key in (None, *map(str, range(50)))]
    seen = set()
    for _ in range(5):
        rng.shuffle(rows)
        cut = rng.randrange(len(rows))
        batches = in_fixed_order([output(rows[:cut]), output([]), output(rows[cut:])], SPEC)
        seen.add(str([row for batch in batches for row in batch.to_pylist()]))
        assert sum(len(batch) for batch in batches) == len(rows)
    assert len(seen) == 1


def test_best_rows_of_windows_without_a_key_are_in_order_too() -> None:
    spec = TopNSpec(
        name="first",
        keys=(),
        rows=(Field("x", DOUBLE),),
        shown=("x",),
        order=(Order("x", ascending=False),),
        n=3,
        rank="rank",
        window=SPEC.window,
        window_name="window",
        window_position=0,
        time_column=SPEC.time_column,
        emit_changed=False,
        watermarked=True,
        shards=8,
    )
    rows = [
        {"window": {"start": start, "end": start + 10}, "x": 1.0 / (start + rank), "rank": rank}
        for start in (0, 10, 20)
        for rank in (1, 2, 3)
    ]
    seen = set()
    for _ in range(5):
        random.shuffle(rows)
        batch = pa.RecordBatch.from_pylist(rows, schema=output_schema(spec))
        seen.add(str([row for batch in in_fixed_order([batch], spec) for row in batch.to_pylist()]))
    assert len(seen) == 1


def test_rows_with_much_in_them_come_in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The offsets of an Arrow column have 32 bits: 65,536 rows with sets of 40 kB each are too many for a batch."""
    monkeypatch.setattr(operator_output, "OUTPUT_BYTES_MAX", 1000)
    words = np.arange(12, dtype=np.int64).reshape(12, 1)
    pieces = list(output_pieces(Rows(words, np.zeros(4000, np.uint8))))
    assert [len(piece) for piece in pieces] == [3, 3, 3, 3]
    assert np.array_equal(np.concatenate([piece.words for piece in pieces]), words)
    assert [len(piece) for piece in output_pieces(Rows(words, np.zeros(1000, np.uint8)))] == [12]
    assert [len(piece) for piece in output_pieces(Rows(words[:1], np.zeros(4000, np.uint8)))] == [1]


def test_nothing_is_nothing() -> None:
    assert in_fixed_order([], SPEC) == []
    assert in_fixed_order([output([])], SPEC) == []
