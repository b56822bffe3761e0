"""Late rows beside the query's own output: written by ingest tasks, read again for the user's second sink.

Exactly once, as the sink itself: rows are those that winning attempts have left out; the second sink gets them once the
epoch is durable and before the query's own sink. A crash in between replays both. So it must be idempotent by epoch.

Nothing is held in the driver: tasks write objects (``commit.late_rows``), receipts name them, and tasks read them
each time the DataFrame is read. They are deleted once the epoch is done.

Threads: ``LateWriter`` belongs to one task. Of ``LateOutput``, ``clean`` runs behind the epoch, and ends before the
next ``write``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from tailrace.commit.late_rows import (
    EVERY_EPOCH,
    LateAttempt,
    LateRef,
    delete_late,
    read_late,
    sweep_late,
    write_late,
)
from tailrace.env.stores.location import open_store
from tailrace.errors import AnalysisError, CheckpointError
from tailrace.operators.ingest.late_rows import REASON_COLUMN, SIDE_COLUMN, late_columns
from tailrace.spark.epoch.output import EpochOutput
from tailrace.spark.epoch.worker import settle
from tailrace.spark.sinks.sinks import EpochSink

_PIECE_BYTES = 16 << 20
_SWEEP_EPOCHS = 50
"""So often what lost attempts have left is looked for: a listing is too dear for every epoch."""


@dataclass(frozen=True)
class LatePlace:
    """Where tasks put rows. ``options`` are the store's and may hold secrets."""

    store_uri: str
    store_options: Mapping[str, str] = field(default_factory=dict, repr=False)


class LateWriter:
    """Takes the rows that one attempt leaves out, and writes them piece by piece: memory is bounded by a piece."""

    def __init__(self, place: LatePlace, at: LateAttempt) -> None:
        self._place = place
        self._at = at
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._written: list[LateRef] = []

    def take(self, rows: pa.RecordBatch) -> None:
        step = max(1, len(rows) * _PIECE_BYTES // max(rows.nbytes, 1))
        for start in range(0, len(rows), step):
            part = rows.slice(start, step)
            self._waiting.append(part)
            self._bytes += part.nbytes
            if self._bytes >= _PIECE_BYTES:
                self._write()

    def finish(self) -> tuple[LateRef, ...]:
        """What was written, all of it durable."""
        if self._waiting:
            self._write()
        return tuple(self._written)

    def _write(self) -> None:
        store = open_store(self._place.store_uri, self._place.store_options)
        self._written.append(write_late(store, self._at, len(self._written), pa.concat_batches(self._waiting)))
        self._waiting, self._bytes = [], 0


@dataclass(frozen=True)
class ReadLate:
    """The function of ``mapInArrow`` over numbers of objects."""

    refs: tuple[LateRef, ...]
    place: LatePlace

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = open_store(self.place.store_uri, self.place.store_options)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_late(store, self.refs[number])
        settle()


class LateOutput:
    """``read``: the columns that the query reads, as Spark has them."""

    def __init__(self, sink: EpochSink, place: LatePlace, read: StructType) -> None:
        self.place = place
        self._sink = sink
        self._store = open_store(place.store_uri, place.store_options)
        self._schema = late_schema(read)
        self._refs: dict[int, list[LateRef]] = {}  # by epoch, until they are deleted
        self._cleaned = 0
        self._sweep_due = False

    def write(self, spark: SparkSession, refs: Sequence[LateRef], epoch: int, again: bool) -> None:
        """Give an epoch's late rows to the user's sink, where there are any (or there may have been)."""
        self._refs.setdefault(epoch, []).extend(refs)
        self._sweep_due |= again  # a try that failed has left objects that nobody names
        if refs or again:
            rows = sum(ref.rows for ref in refs)
            self._sink.write(EpochOutput(rows, False, lambda: self._frame(spark, tuple(refs))), epoch, again)

    def _frame(self, spark: SparkSession, refs: tuple[LateRef, ...]) -> DataFrame:
        tasks = max(1, min(len(refs), spark.sparkContext.defaultParallelism))
        return spark.range(0, len(refs), 1, tasks).mapInArrow(ReadLate(refs, self.place), self._schema)

    def clean(self, epoch: int) -> None:
        """Delete the objects of epochs up to ``epoch``, which are done."""
        for done in [each for each in self._refs if each <= epoch]:
            delete_late(self._store, self._refs[done])
            del self._refs[done]
        self._cleaned += 1
        if self._sweep_due or self._cleaned % _SWEEP_EPOCHS == 0:
            self._sweep_due = False
            sweep_late(self._store, epoch)

    def close(self) -> None:
        """No epoch is under way any more. What cannot be deleted now goes with the next start."""
        with suppress(CheckpointError):
            sweep_late(self._store, EVERY_EPOCH)


def late_schema(read: StructType) -> StructType:
    """Late rows as Spark sees them."""
    for name in (REASON_COLUMN, SIDE_COLUMN):
        if name in {each.lower() for each in read.names}:
            raise AnalysisError(f"lateRows: a column is named {name!r}, which late rows get: rename it")
    types = {each.name: each.dataType for each in read.fields}
    return StructType([StructField(name, types.get(name, StringType())) for name in late_columns(read.names)])
