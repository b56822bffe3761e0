"""Overlapping windows by count on records: blocks that get full in and between epochs, every kind of aggregate, what an
epoch costs, what is left of keys that are forgotten, sums that leave their range.
"""

from __future__ import annotations

import math
import os
import random
import tempfile
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.operators import window_scenario as cases
from support.operators.window_scenario import INCREMENTAL, Row, by_count, play, spec_of
from tailrace.errors import SumOverflowError
from tailrace.ids import MIN_MICROS, Micros
from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput, Output
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.base import Operator
from tailrace.operators.count_window import sliding as count_panes
from tailrace.operators.count_window import steps as count_steps
from tailrace.operators.count_window.sliding import CountPanes
from tailrace.operators.registry import ingest_of, operator_of
from tailrace.operators.timers.ttl import Clock, Ttl
from tailrace.operators.windows.count_window import CountWindowSpec
from tailrace.state.layout import Merge
from tailrace.types import BIGINT, DOUBLE, TIMESTAMP, DataType, Field

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"


@settings(max_examples=300 if LONG else 6, deadline=None, print_blob=True)
@given(st.integers(0, 2**48))
def test_windows_as_a_model_has_them(seed: int) -> None:
    """Epochs of one row, of many blocks, and none at all."""
    rng = random.Random(seed)
    size = rng.choice([2, 5, 12, 30])
    slide, update = rng.randint(1, size - 1), rng.random() < 0.5
    epochs: list[list[Row]] = []
    for epoch in range(rng.choice([3, 12])):
        rows = rng.choice([0, 1, size, 3 * size])
        texts = [None, *(rng.choice("abß") * rng.randrange(9) for _ in range(5))]
        epochs.append([(rng.choice("ab"), 9 * epoch + i, rng.randint(-9, 9), rng.choice(texts)) for i in range(rows)])
    spec = spec_of(INCREMENTAL, window=CountWindowSpec(size, slide), emit_changed=update, watermarked=False)
    memory = rng.choice([1 << 12, 1 << 24])
    with tempfile.TemporaryDirectory() as folder:

        def make(shards: Iterable[int]) -> Operator:
            operator = operator_of(spec, shards, memory_bytes=memory, folder=folder)
            assert isinstance(operator, CountPanes)
            return operator

        wanted = by_count(epochs, size, slide=slide, update=update)
        with pytest.MonkeyPatch.context() as patch:
            if rng.random() < 0.5:  # how many are merged together decides nothing
                patch.setattr(count_panes, "WORK_ROWS_MAX", 1)
            play(spec, make, epochs, wanted, INCREMENTAL, combine=False, seed=seed)


WIDE = DataType("decimal(38,2)")
VALUES = {"d": DOUBLE, "e": DataType("decimal(28,2)"), "s": DataType("string"), "i": BIGINT}


def every_aggregate(size: int, slide: int, store: str | None) -> AggregateSpec:
    accumulators = [
        Accumulator(Merge.ADD, AccumulatorInput.ONE, None, BIGINT),
        Accumulator(Merge.ADD, AccumulatorInput.PRESENT, "i", BIGINT),
        Accumulator(Merge.MOMENTS, AccumulatorInput.DOUBLE, "d", DOUBLE),
        Accumulator(Merge.ADD, AccumulatorInput.VALUE, "e", WIDE),
        Accumulator(Merge.ADD, AccumulatorInput.DOUBLE, "i", DOUBLE),
        Accumulator(Merge.ADD, AccumulatorInput.DOUBLE, "d", DOUBLE),
    ]
    outputs = [
        Output("rows", "count", (0,), BIGINT),
        Output("deviation", "stddev", (2,), DOUBLE),
        Output("total", "sum", (3,), WIDE),
        Output("mean", "avg", (4, 1), DOUBLE),
        Output("sum", "sum", (5,), DOUBLE),
    ]
    for merge, input in (
        (Merge.MIN, AccumulatorInput.VALUE),
        (Merge.MAX, AccumulatorInput.VALUE),
        (Merge.FIRST, AccumulatorInput.TIMED),
    ):
        for name, type_ in VALUES.items():
            outputs.append(Output(f"{merge}_{name}", "max", (len(accumulators),), type_))
            accumulators.append(Accumulator(merge, input, name, type_))
    accumulators.append(Accumulator(Merge.LAST, AccumulatorInput.TIMED_PRESENT, "s", VALUES["s"]))
    outputs.append(Output("last_s", "last", (len(accumulators) - 1,), VALUES["s"]))
    return spec_of(
        (),
        accumulators=tuple(accumulators),
        outputs=tuple(outputs),
        rows=(Field("ts", TIMESTAMP), *(Field(name, type_) for name, type_ in VALUES.items())),
        window=CountWindowSpec(size, slide),
        store=store,
        watermarked=False,
        emit_changed=True,
    )


def test_every_aggregate_is_what_it_is_of_the_rows(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    size = rng.choice([4, 10, 17])
    slide = rng.randint(1, size - 1)
    specs = [every_aggregate(size, slide, store) for store in (None, "AUR")]
    operators: list[Any] = [operator_of(s, range(s.shards), memory_bytes=1 << 13, folder=str(tmp_path)) for s in specs]
    types = VALUES | {"ts": TIMESTAMP, "k": cases.STRING}
    for epoch in range(12):
        count = rng.choice([1, 7, 60])
        drawn: dict[str, list[Any]] = {
            "d": [rng.choice([None, -0.0, 0.0, math.inf, 0.5, 2.25, -8.0]) for _ in range(count)],
            "e": [rng.choice([None, Decimal("1.25"), Decimal("-999999999.50")]) for _ in range(count)],
            "s": [rng.choice([None, "", "b" * rng.randrange(40)]) for _ in range(count)],
            "i": [rng.choice([None, 1, -(2**40)]) for _ in range(count)],
        }
        columns = {
            "k": pa.array([rng.choice("xy") for _ in range(count)]),
            "ts": pa.array([rng.randrange(5) for _ in range(count)], pa.timestamp("us", tz="UTC")),
            "d": pa.array(drawn["d"], pa.float64()),
            "e": pa.array(drawn["e"], pa.decimal128(28, 2)),
            "s": pa.array(drawn["s"], pa.string()),
            "i": pa.array(drawn["i"], pa.int64()),
        }
        batch, found = pa.RecordBatch.from_pydict(columns), []
        for spec, operator in zip(specs, operators, strict=True):
            operator.apply(epoch, [ingest_of(spec, MIN_MICROS, False, types).frame([batch])])
            rows = [row for out in operator.advance(epoch, MIN_MICROS, MIN_MICROS) for row in out.to_pylist()]
            found.append({(row["k"], row["window"]): row for row in rows})
        assert found[0].keys() == found[1].keys()
        for name, row in found[0].items():
            other = found[1][name]
            assert close(row.pop("deviation"), other.pop("deviation"))
            assert repr(row) == repr(other)
    for operator in operators:
        operator.close()


def close(a: float | None, b: float | None) -> bool:
    """Deviations round as panes do."""
    if a is None or b is None or math.isnan(a) or math.isnan(b):
        return (a is None or math.isnan(a)) == (b is None or math.isnan(b))
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)


def timeline(spec: AggregateSpec, rows_an_epoch: int, rows: int, folder: str) -> tuple[int, int]:
    """(records changed, windows given) by so many rows of one key."""
    operator: Any = operator_of(spec, range(spec.shards), memory_bytes=1 << 24, folder=folder)
    changed = windows = 0
    for epoch in range(rows // rows_an_epoch):
        made: list[Row] = [("k", epoch * rows_an_epoch + i, 1, "x") for i in range(rows_an_epoch)]
        operator.apply(epoch, [ingest_of(spec, MIN_MICROS, False, cases.TYPES).frame([cases.batch_of(made)])])
        windows += sum(len(batch) for batch in operator.advance(epoch, MIN_MICROS, MIN_MICROS))
        changed += sum(len(batch) for batch in operator.delta(epoch).values())
        operator.forget(epoch)
    operator.close()
    return changed, windows


@pytest.mark.parametrize(("size", "slide"), [(6, 3), (60, 3), (60, 1), (59, 7)])
def test_what_a_row_costs_does_not_depend_on_how_many_windows_it_is_in(
    size: int, slide: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, plan = [], count_steps.ck.plan_steps

    def counted(*args: Any) -> int:
        planned.append(plan(*args))
        return planned[-1]

    monkeypatch.setattr(count_steps.ck, "plan_steps", counted)
    spec = spec_of(INCREMENTAL, window=CountWindowSpec(size, slide), watermarked=False)
    rows = 150
    for rows_an_epoch in (1, 75):
        planned.clear()
        changed, windows = timeline(spec, rows_an_epoch, rows, str(tmp_path))
        assert windows == (rows - size) // slide + 1
        # Head, former head and pane of each row, two steps for a window, one to make a pane wait for its window.
        assert sum(planned) <= 3 * rows + 3 * (rows // slide)
        assert changed <= 3 * rows + rows // slide


@pytest.mark.parametrize("clock", list(Clock))
@pytest.mark.parametrize("memory_bytes", [0, 1 << 24])
@pytest.mark.parametrize(("size", "slide"), [(6, 2), (7, 2), (5, 4)])
def test_nothing_is_left_of_keys_that_are_forgotten(
    size: int, slide: int, memory_bytes: int, clock: Clock, tmp_path: Path
) -> None:
    accumulators = list(cases.ACCUMULATORS)
    accumulators.insert(1, Accumulator(Merge.MAX, AccumulatorInput.STAMP, None, TIMESTAMP))
    spec = spec_of(
        (),
        accumulators=tuple(accumulators),
        outputs=(Output("n", "count", (0,), BIGINT),),
        window=CountWindowSpec(size, slide),
        watermarked=clock is Clock.EVENT,
        ttl=Ttl(Micros(100), clock),
    )
    operator: Any = operator_of(spec, range(spec.shards), memory_bytes=memory_bytes, folder=str(tmp_path))
    for epoch in range(17):
        operator.set_times(epoch, MIN_MICROS)
        # Keys stop at different places of a block.
        rows: list[Row] = [(f"k{key}", epoch, 1, "x") for key in range(17) if key >= epoch]
        operator.apply(epoch, [ingest_of(spec, MIN_MICROS, False, cases.TYPES).frame([cases.batch_of(rows)])])
        operator.advance(epoch, MIN_MICROS, MIN_MICROS)
    left = []
    for epoch, before in ((17, 7), (18, 1000), (19, 1000)):
        operator.set_times(1000, before)
        operator.apply(epoch, [])
        operator.advance(epoch, MIN_MICROS, MIN_MICROS)
        left.append(operator.rows)
    assert left[0] > 9 and left[1:] == [0, 0]
    operator.undo(18)
    assert operator.rows == left[0]
    operator.close()


def test_a_sum_that_leaves_its_range_is_reported_and_changes_nothing(tmp_path: Path) -> None:
    spec = spec_of(INCREMENTAL, window=CountWindowSpec(4, 2), watermarked=False)
    operator: Any = operator_of(spec, range(spec.shards), memory_bytes=1 << 24, folder=str(tmp_path))

    def reported(epoch: int, values: list[int]) -> list[Any]:
        rows: list[Row] = [("k", i, value, None) for i, value in enumerate(values)]
        operator.apply(epoch, [ingest_of(spec, MIN_MICROS, False, cases.TYPES).frame([cases.batch_of(rows)])])
        batches = operator.advance(epoch, MIN_MICROS, MIN_MICROS)
        return [total for batch in batches for total in batch["total"].to_pylist()]

    assert reported(0, [2**62]) == []
    with pytest.raises(SumOverflowError, match=r"operator windows, epoch 1: a sum left the range of bigint .*total"):
        reported(1, [1, 2**62])
    operator.undo(1)
    assert reported(1, [1, 2, 3]) == [2**62 + 6]
    operator.close()


def test_strings_that_a_window_takes_over_find_room(tmp_path: Path) -> None:
    """Each row's text is smaller than those before it, so that every merge takes one over."""
    spec = spec_of(INCREMENTAL, window=CountWindowSpec(40, 1), watermarked=False)
    operator: Any = operator_of(spec, range(spec.shards), memory_bytes=1 << 24, folder=str(tmp_path))
    texts = ["z" * 5000 + f"{200 - i:04}" for i in range(200)]
    rows: list[Row] = [("k", i, 1, text) for i, text in enumerate(texts)]
    operator.apply(0, [ingest_of(spec, MIN_MICROS, False, cases.TYPES).frame([cases.batch_of(rows)])])
    batches = operator.advance(0, MIN_MICROS, MIN_MICROS)
    least = np.concatenate([batch["least"].to_pylist() for batch in batches])
    assert least.tolist() == texts[39:]
    operator.close()
