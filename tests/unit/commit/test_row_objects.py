"""Objects of rows: what is read is what was written, or an error; sweeping takes what is done and nothing else."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from support.models.spark_logs import spark_logs
from tailrace.commit.controller import Controller
from tailrace.commit.row_objects import (
    EVERY_EPOCH,
    RowsAttempt,
    RowsRef,
    delete_rows,
    read_rows,
    sweep_rows,
    write_rows,
)
from tailrace.env.stores.local_store import LocalStore
from tailrace.errors import CorruptionError
from tailrace.log import filenames
from tailrace.spark.tasks.row_objects import RowsPlace, RowsWriter

RUN = "0123456789abcdef"


def batch(first: int, rows: int) -> pa.RecordBatch:
    numbers = list(range(first, first + rows))
    return pa.RecordBatch.from_pydict({"n": numbers, "s": [None if n % 3 == 0 else f"row {n}" for n in numbers]})


def write(store: LocalStore, epoch: int, attempt: int = 7, piece: int = 0) -> RowsRef:
    return write_rows(store, RowsAttempt(RUN, epoch, 0, 3, attempt), piece, batch(epoch, 10))


def names(store: LocalStore) -> list[str]:
    return [each.name for each in store.list(filenames.ROWS_PREFIX)]


def test_what_is_read_was_written(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    ref = write(store, 5)
    assert ref.rows == 10
    assert pa.Table.from_batches(read_rows(store, ref)).equals(pa.Table.from_batches([batch(5, 10)]))


@pytest.mark.parametrize("at", [20, 300, -30])
def test_a_damaged_object_is_refused(tmp_path: Path, at: int) -> None:
    store = LocalStore(tmp_path)
    ref = write(store, 5)
    path = tmp_path / ref.name
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match="rows/"):
        list(read_rows(store, ref))


def test_another_object_is_refused(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    one, other = write(store, 5), write(store, 5, attempt=8)
    (tmp_path / other.name).rename(tmp_path / one.name)
    for ref in (one, other):
        with pytest.raises(CorruptionError, match="Start the query again"):
            list(read_rows(store, ref))


def test_sweeping_leaves_epochs_under_way(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    refs = [write(store, epoch, attempt) for epoch in (3, 4, 5) for attempt in (7, 8)]
    delete_rows(store, refs[:1])
    sweep_rows(store, RUN, 4)
    assert names(store) == [ref.name for ref in refs[4:]]
    sweep_rows(store, RUN, EVERY_EPOCH)
    assert names(store) == []


def test_a_replaced_run_leaves_the_late_rows_of_its_successor_alone(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    write(store, 3)
    kept = write_rows(store, RowsAttempt("b" * 16, 3, 0, 3, 9), 0, batch(3, 10))
    sweep_rows(store, RUN, EVERY_EPOCH)
    assert names(store) == [kept.name]


def test_a_start_deletes_what_is_there(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    write(store, 3)
    Controller.start(store, {"plan": 1}, spark_logs()).close()
    assert names(store) == []


def test_a_task_writes_much_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.spark.tasks.row_objects._PIECE_BYTES", 4096)
    writer = RowsWriter(RowsPlace(str(tmp_path)), RowsAttempt(RUN, 2, 1, 0, 99))
    assert writer.finish() == ()
    for first in range(0, 3000, 1000):
        writer.take(batch(first, 1000))
    refs = writer.finish()
    assert len(refs) > 5 and len({ref.name for ref in refs}) == len(refs)
    assert max(ref.bytes for ref in refs) < 3 * 4096
    store = LocalStore(tmp_path)
    read = pa.Table.from_batches(each for ref in refs for each in read_rows(store, ref))
    assert read.equals(pa.Table.from_batches([batch(0, 3000)]).combine_chunks())
