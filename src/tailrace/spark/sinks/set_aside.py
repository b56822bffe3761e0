"""What tasks have set aside for a table or a topic (``tasks.set_aside``), as the driver reads it: in the order of the
partitions, and within each in the order of its rows.

It may be read any number of times, until it is dropped, which is when the table has it or the epoch has failed. What
attempts have left that no receipt names is swept now and then, and at the end of the run.

Threads: ``clean`` runs in the thread that cleans up behind epochs, everything else in the epoch's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from tailrace.commit.row_objects import EVERY_EPOCH, delete_rows, read_rows, sweep_rows
from tailrace.env.stores.location import open_store
from tailrace.env.stores.object_store import ObjectStore
from tailrace.errors import CheckpointError
from tailrace.ids import Attempt
from tailrace.spark.private import texts_of
from tailrace.spark.sinks.epoch_output import reading
from tailrace.spark.tasks.ingest import RECEIPT_DDL
from tailrace.spark.tasks.row_objects import RowsPlace
from tailrace.spark.tasks.set_aside import RowsReceipt, SetAside

_SWEEP_EPOCHS = 50
"""A listing, which finds the objects of lost attempts, is too expensive for every epoch."""


@dataclass(frozen=True)
class RowsAside:
    """Of one epoch."""

    receipts: tuple[RowsReceipt, ...]
    store: ObjectStore

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.receipts)

    def batches(self) -> Iterator[pa.RecordBatch]:
        for receipt in self.receipts:
            yield from receipt.few_batches()
            for ref in receipt.objects:
                yield from read_rows(self.store, ref)

    def drop(self) -> None:
        """What cannot be deleted now is swept later."""
        if refs := [ref for receipt in self.receipts for ref in receipt.objects]:
            with suppress(CheckpointError):
                delete_rows(self.store, refs)


class RowsSetAside:
    """Of one run."""

    def __init__(self, place: RowsPlace, run: str) -> None:
        self._task = SetAside(place, run)
        self._run = run
        self._store = open_store(place.store_uri, place.store_options)
        self._used = False  # whether there may be objects
        self._cleaned = 0

    def receipts_of(self, rows: DataFrame) -> DataFrame:
        """The receipts of the tasks that make these rows."""
        return rows.mapInArrow(self._task, RECEIPT_DDL)

    def collected(self, receipts: DataFrame, at: Attempt) -> RowsAside:
        """Runs the tasks. One job, and each partition's receipt is that of a committed attempt."""
        self._used = True
        with reading(receipts.sparkSession.sparkContext, self._run, at):
            found = [RowsReceipt.from_json(text) for text in texts_of(receipts)]
        return RowsAside(tuple(sorted(found, key=lambda each: each.partition)), self._store)

    def clean(self, epoch: int) -> None:
        """Delete what is left of epochs up to this one, which are done."""
        self._cleaned += 1
        if self._used and self._cleaned % _SWEEP_EPOCHS == 0:
            sweep_rows(self._store, self._run, epoch)

    def close(self) -> None:
        """No epoch is running any more. The next start deletes what cannot be deleted now."""
        if self._used:
            with suppress(CheckpointError):
                sweep_rows(self._store, self._run, EVERY_EPOCH)
