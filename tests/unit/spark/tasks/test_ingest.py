"""How a task's rows are cut into frames: by their number alone, however Spark hands them over."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.spark.tasks import ingest
from tailrace.spark.tasks.ingest import FRAME_ROWS_MAX, chunks


@given(st.lists(st.integers(0, 12), max_size=8), st.integers(1, 20), st.integers(1, 6))
def test_frames_have_the_same_rows_however_batches_are_cut(sizes: list[int], frame_rows: int, first_frame: int) -> None:
    batches, first = [], 0
    for size in sizes:
        batches.append(pa.RecordBatch.from_pydict({"n": pa.array(range(first, first + size), pa.int64())}))
        first += size
    made = chunks(batches, frame_rows, first_frame)
    found = [[n for part in chunk for n in part.column(0).to_pylist()] for chunk in made]
    expected, at = [], 0
    while at < first:
        rows = frame_rows * max(first_frame - len(expected), 1 << len(expected) // 8)
        expected.append(list(range(at, min(at + rows, first))))
        at += rows
    assert found == expected


def test_wide_rows_make_smaller_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "_FRAME_BYTES", 100)
    batch = pa.RecordBatch.from_pydict({"n": pa.array(range(10), pa.int64())})
    assert [sum(map(len, chunk)) for chunk in chunks([batch] * 5, 1 << 17)] == [20, 20, 10]


def test_a_flood_after_a_trickle_makes_no_flood_of_frames() -> None:
    batch = pa.RecordBatch.from_pydict({"n": pa.nulls(10_000, pa.int8())})
    sizes = [sum(map(len, chunk)) for chunk in chunks([batch] * 300, 128)]
    assert sum(sizes) == 3_000_000 and len(sizes) < 110
    assert max(sizes) == FRAME_ROWS_MAX and sizes[:9] == [128] * 8 + [256]
    assert [sum(map(len, chunk)) for chunk in chunks([batch] * 300, FRAME_ROWS_MAX, 2)][:-1] == [FRAME_ROWS_MAX] * 22
