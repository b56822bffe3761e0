"""The receipts of an epoch's ingest: runs its job.

A batch inside ``foreachBatch`` is an RDD with a name for Spark's planner. To collect it as a DataFrame, Spark plans,
compiles and watches a second query just to hand a few rows over: 10 to 20 ms of every epoch. So the RDD is collected.
(Its iterators may use one row for all of theirs: each has one only.) Where a batch is something else, or its tasks are
so many that asking for their rows one by one takes longer, it is collected as any DataFrame.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from tailrace.spark.tasks.ingest import Receipt

TASKS_MAX = 16
"""A row costs two calls from here to the JVM."""
_NAMED_RDD = "org.apache.spark.sql.execution.LogicalRDD"


def receipts_of(batch: DataFrame) -> list[Receipt]:
    """Runs the tasks of the batch, and gives the receipts of those that have won: one of each partition."""
    receipts = [Receipt.from_json(text) for text in texts_of(batch)]
    assert len({receipt.partition for receipt in receipts}) == len(receipts), "a task was heard twice"
    return receipts


def texts_of(batch: DataFrame) -> list[str]:
    """The only column, of the only row of every task."""
    rdd = _rdd_of(batch)
    if rdd is None or rdd.getNumPartitions() > TASKS_MAX:
        return [row[0] for row in batch.collect()]
    return [row.getString(0) for row in rdd.collect()]


def _rdd_of(batch: DataFrame) -> Any:
    plan = batch._jdf.queryExecution().logical()
    return plan.rdd() if plan.getClass().getName() == _NAMED_RDD else None
