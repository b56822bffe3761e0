"""Late rows beside the query's own output: ingest tasks have written them, and a second sink of the user gets them.

Exactly once, as the sink itself: the rows are those that committed attempts have dropped; the second sink gets them
once the epoch may reach its sink, and before the query's own sink. A crash in between replays both, so each of them
finds out for itself whether it has the epoch. The objects are deleted once the epoch is done.

Threads: ``clean`` runs in the thread that cleans up after an epoch, and ends before the next ``write``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from tailrace.commit.row_objects import EVERY_EPOCH, RowsRef, delete_rows, sweep_rows
from tailrace.env.stores.location import open_store
from tailrace.errors import AnalysisError, CheckpointError
from tailrace.operators.ingest.late_rows import REASON_COLUMN, SIDE_COLUMN, late_columns
from tailrace.spark.sinks.contract import EpochSink, SinkEpoch, release
from tailrace.spark.sinks.epoch_output import EpochOutput
from tailrace.spark.tasks.row_objects import ReadRows, RowsPlace

_SWEEP_EPOCHS = 50
"""A listing, which finds the objects of lost attempts, is too expensive for every epoch."""


class LateOutput:
    """``run``: whose rows they are. ``read``: the columns that the query reads, as Spark has them."""

    def __init__(self, sink: EpochSink, place: RowsPlace, run: str, read: StructType) -> None:
        self.place = place
        self._sink = sink
        self._run = run
        self._store = open_store(place.store_uri, place.store_options)
        self._schema = late_schema(read)
        self._refs: dict[int, list[RowsRef]] = {}  # by epoch, until they are deleted
        self._cleaned = 0
        self._sweep_due = False

    def write(self, spark: SparkSession, refs: Sequence[RowsRef], at: SinkEpoch) -> None:
        """Give an epoch's late rows to the user's sink, where there are any (or there may have been)."""
        self._refs.setdefault(at.epoch, []).extend(refs)
        self._sweep_due |= at.again  # a failed try has left objects that no receipt names
        if refs or at.again:
            rows = sum(ref.rows for ref in refs)
            release(self._sink, EpochOutput(rows, False, lambda: self._frame(spark, tuple(refs))), at)

    def _frame(self, spark: SparkSession, refs: tuple[RowsRef, ...]) -> DataFrame:
        tasks = max(1, min(len(refs), spark.sparkContext.defaultParallelism))
        return spark.range(0, len(refs), 1, tasks).mapInArrow(ReadRows(refs, self.place), self._schema)

    def clean(self, epoch: int) -> None:
        """Delete the objects of epochs up to ``epoch``, which are done."""
        self._sink.clean(epoch)
        for done in [each for each in self._refs if each <= epoch]:
            delete_rows(self._store, self._refs[done])
            del self._refs[done]
        self._cleaned += 1
        if self._sweep_due or self._cleaned % _SWEEP_EPOCHS == 0:
            self._sweep_due = False
            sweep_rows(self._store, self._run, epoch)

    def close(self) -> None:
        """No epoch is running any more. The next start deletes what cannot be deleted now."""
        with suppress(CheckpointError):
            sweep_rows(self._store, self._run, EVERY_EPOCH)


def late_schema(read: StructType) -> StructType:
    """Late rows as Spark sees them."""
    for name in (REASON_COLUMN, SIDE_COLUMN):
        if name in {each.lower() for each in read.names}:
            raise AnalysisError(f"lateRows: a column is named {name!r}, which late rows get: rename it")
    types = {each.name: each.dataType for each in read.fields}
    return StructType([StructField(name, types.get(name, StringType())) for name in late_columns(read.names)])
