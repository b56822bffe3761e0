"""Epochs without input: a streaming source without rows, whose offset moves when the driver asks for an epoch.

Spark runs an epoch when one of a query's sources has a new offset. A query whose rows may come up by the clock has this
source beside its own, so that it can have an epoch while all of these are silent. The offset is the number of the epoch
that was asked for last, in a file that Spark's reader of the source looks at: it runs in a process of its own, beside
the driver. A replay of such an epoch finds its offsets in Spark's log, and no rows, as it did the first time.

Threads: any may ask.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from tailrace.env.files.scratch import (
    ProcessLock,
    folders,
    make_private,
    private_base,
    read_whole,
    remove_tree,
    write_whole,
)
from tailrace.spark.tasks.ingest import RECEIPT_DDL

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as _Bounded
except ImportError:  # before PySpark 4.2

    class _Bounded:  # type: ignore[no-redef]
        """Spark itself keeps such a source to what it has at the start, where the session lets it."""


_PREFIX = "ticks-"
_FILE, _PLANNED = "file", "planned"
_TICK = "tick"
_LOCK = "lock"
_WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


class Ticks:
    """Of one run. ``planned``: the newest epoch of Spark's log, so that none was asked for behind it."""

    def __init__(self, run: str, planned: int) -> None:
        base = private_base(0)
        _remove_left(base)
        self._folder = os.path.join(base, f"{_PREFIX}{run}")
        make_private(self._folder)
        self._lock = ProcessLock.take(os.path.join(self._folder, _LOCK), 0.0)
        self._file = os.path.join(self._folder, _TICK)
        self._planned = planned

    def ask(self, epoch: int) -> None:
        """Have this epoch, whether rows come for it or not."""
        write_whole(self._file, str(epoch))

    def receipts(self, spark: SparkSession) -> DataFrame:
        """To be united with the receipts of a query's tasks: none."""
        spark.dataSource.register(TickSource)
        if _Bounded.__module__ == __name__:
            spark.conf.set(_WRAPPER, "true")  # else availableNow would read all that there is in one epoch
        return (
            spark.readStream.format(TickSource.name())
            .options(**{_FILE: self._file, _PLANNED: str(self._planned)})
            .load()
        )

    def close(self) -> None:
        remove_tree(self._folder)
        if self._lock is not None:
            self._lock.release()


class TickSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "tailrace-ticks"

    def schema(self) -> str:
        return RECEIPT_DDL

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return _TickReader(str(self.options[_FILE]), int(self.options[_PLANNED]))


class _TickReader(DataSourceStreamReader, _Bounded):
    def __init__(self, file: str, planned: int) -> None:
        self._file = file
        self._planned = planned
        self._bounded = False  # with the trigger availableNow, which reads what there is and no more

    def initialOffset(self) -> dict[str, int]:
        return {_TICK: 0}

    def prepareForTriggerAvailableNow(self) -> None:
        self._bounded = True

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        """Where this run has asked for no epoch, no new one.

        PySpark before 4.2 does not say where it stands: then a run may begin with an epoch without rows.
        """
        asked = None if self._bounded else read_whole(self._file)
        if asked is not None:
            return {_TICK: int(asked)}
        return {_TICK: max(0, self._planned)} if start is None else start

    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        yield from ()


def _remove_left(base: str) -> None:
    """What killed drivers have left."""
    for name in folders(base):
        if name.startswith(_PREFIX):
            folder = os.path.join(base, name)
            lock = ProcessLock.take(os.path.join(folder, _LOCK), 0.0)
            if lock is not None:
                remove_tree(folder)
                lock.release()
