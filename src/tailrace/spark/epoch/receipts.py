"""The receipts of an epoch's ingest: runs its job."""

from __future__ import annotations

from pyspark.sql import DataFrame

from tailrace.spark.private import batch_texts
from tailrace.spark.tasks.ingest import Receipt

TASKS_MAX = 16
"""Collecting the rows of more tasks one by one takes longer than a second query does."""


def receipts_of(batch: DataFrame) -> list[Receipt]:
    """Runs the tasks of the batch, and gives the receipts of the committed attempts: one of each partition."""
    receipts = [Receipt.from_json(text) for text in texts_of(batch)]
    assert len({receipt.partition for receipt in receipts}) == len(receipts), "two receipts of one partition"
    return receipts


def texts_of(batch: DataFrame) -> list[str]:
    """The only column, of the only row of every task."""
    texts = batch_texts(batch, TASKS_MAX)
    return [row[0] for row in batch.collect()] if texts is None else texts
