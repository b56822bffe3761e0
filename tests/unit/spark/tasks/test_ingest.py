"""How a task's rows are cut into frames: by their number alone, however Spark hands them over. What a receipt says."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.servers.state_servers import SHARDS, SPEC
from tailrace.ids import MIN_MICROS
from tailrace.server.transport.stage_messages import NOTHING_STAGED
from tailrace.spark.tasks import ingest
from tailrace.spark.tasks.ingest import FRAME_ROWS_MAX, IngestTask, Receipt, TaskInstructions, chunks


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


class Writer:
    """Takes frames for a server that nobody has started."""

    def __init__(self) -> None:
        self.receipt = NOTHING_STAGED

    def write(self, frame: Any) -> None:
        self.receipt = self.receipt.after(frame.n, frame.nbytes, frame.checksum())

    def finish(self) -> Any:
        return self.receipt

    def abort(self) -> None:
        pass


def receipt(monkeypatch: pytest.MonkeyPatch, values: list[int], servers: int = 1, by_rows: bool = True) -> Receipt:
    """Of a task with these rows, in frames of four."""
    monkeypatch.setattr(ingest, "connect", lambda *_: SimpleNamespace(stage=lambda key: Writer()))
    access: Any = SimpleNamespace(run="r" * 16)
    types = (("k", "bigint"), ("v", "bigint"))
    task = IngestTask(SPEC.for_tasks().to_json(), types, access, ordered_by_rows=by_rows)
    edges = [SHARDS * number // servers for number in range(servers + 1)]
    routes: Any = tuple((None, low, high) for low, high in pairwise(edges))
    instructions = TaskInstructions(0, 0, {SPEC.name: MIN_MICROS}, False, 4, 1, eager=False, servers=routes)
    keys = pa.array(range(len(values)), pa.int64())
    batch = pa.RecordBatch.from_pydict({"k": keys, "v": pa.array(values, pa.int64())})
    return task._run(iter([batch]), instructions, 7, 0)


def test_the_checksum_of_a_task_is_that_of_its_rows_whatever_servers_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of tasks follows from it, in a replay with other servers too."""
    rows = list(range(10))
    first = receipt(monkeypatch, rows)
    assert first.checksum and Receipt.from_json(first.to_json()) == first
    assert {receipt(monkeypatch, rows, servers).checksum for servers in (1, 2, 3, SHARDS)} == {first.checksum}
    others = [rows[:-1], [*rows[:-1], 0], rows[::-1]]
    assert len({receipt(monkeypatch, each).checksum for each in (rows, *others)}) == 4, "the last frame counts too"
    assert receipt(monkeypatch, rows, by_rows=False).checksum == 0
