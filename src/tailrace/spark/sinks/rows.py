"""``foreach``: the user's Python, once a row, in Spark's tasks.

A writer's ``open(partition, epoch)`` may say that a partition was written before. So a partition of an epoch must have
the same rows whenever it comes, in a replay on other machines too: rows go to partitions by the hash of their values,
and there are as many as Spark keeps for the query in its offset log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, Row

_PARTITIONS = "spark.sql.shuffle.partitions"
_WITHOUT_HASH = ("map<", "variant")


class RowWriter:
    """What a task calls with the rows of its partition: PySpark's contract of ``foreach``."""

    def __init__(self, writer: Any, epoch: int) -> None:
        self._writer = writer
        self._epoch = epoch

    @property
    def knows_partitions(self) -> bool:
        return not callable(self._writer) and hasattr(self._writer, "open")

    def __call__(self, rows: Iterator[Row]) -> None:
        if callable(self._writer):
            for row in rows:
                self._writer(row)
            return
        context = TaskContext.get()
        assert context is not None
        wanted = self._writer.open(context.partitionId(), self._epoch) if self.knows_partitions else True
        error: Exception | None = None
        try:
            if wanted:
                for row in rows:
                    self._writer.process(row)
        except Exception as found:
            error = found
            raise
        finally:
            if hasattr(self._writer, "close"):
                self._writer.close(error)


def partitioned_by_value(rows: DataFrame) -> DataFrame:
    """Equal rows in the same partition whenever they come. Spark hashes no maps; other columns decide then."""
    count = int(rows.sparkSession.conf.get(_PARTITIONS, "200") or 200)
    often = Counter(field.name.lower() for field in rows.schema.fields)
    keys = [
        "`" + field.name.replace("`", "``") + "`"
        for field in rows.schema.fields
        if often[field.name.lower()] == 1 and not any(kind in field.dataType.simpleString() for kind in _WITHOUT_HASH)
    ]
    return rows.repartition(count, *keys) if keys else rows.coalesce(1)
