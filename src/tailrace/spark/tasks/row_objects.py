"""Rows that tasks set aside: they write them to objects, and tasks of another job, or the driver, read them again.

Nothing is held in the driver: receipts name the objects (``commit.row_objects``).

Threads: a ``RowsWriter`` belongs to one task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from tailrace.commit.row_objects import RowsAttempt, RowsRef, read_rows, write_rows
from tailrace.env.stores.location import open_store
from tailrace.spark.tasks.worker import tune_worker

_PIECE_BYTES = 16 << 20


@dataclass(frozen=True)
class RowsPlace:
    """Where tasks put rows. ``store_options`` may hold secrets."""

    store_uri: str
    store_options: Mapping[str, str] = field(default_factory=dict, repr=False)


class RowsWriter:
    """Takes the rows that one attempt sets aside, and writes them piece by piece: memory is bounded by a piece."""

    def __init__(self, place: RowsPlace, at: RowsAttempt) -> None:
        self._place = place
        self._at = at
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._written: list[RowsRef] = []

    def take(self, rows: pa.RecordBatch) -> None:
        step = max(1, len(rows) * _PIECE_BYTES // max(rows.nbytes, 1))
        for start in range(0, len(rows), step):
            part = rows.slice(start, step)
            self._waiting.append(part)
            self._bytes += part.nbytes
            if self._bytes >= _PIECE_BYTES:
                self._write()

    def finish(self) -> tuple[RowsRef, ...]:
        """The objects that were written, all of them durable."""
        if self._waiting:
            self._write()
        return tuple(self._written)

    def _write(self) -> None:
        store = open_store(self._place.store_uri, self._place.store_options)
        self._written.append(write_rows(store, self._at, len(self._written), pa.concat_batches(self._waiting)))
        self._waiting, self._bytes = [], 0


@dataclass(frozen=True)
class ReadRows:
    """The function of ``mapInArrow`` over numbers of objects."""

    refs: tuple[RowsRef, ...]
    place: RowsPlace

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = open_store(self.place.store_uri, self.place.store_options)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_rows(store, self.refs[number])
        tune_worker()
