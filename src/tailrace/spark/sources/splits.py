"""How Spark cuts an epoch's input into tasks, so that a replay gets the same tasks.

Doubles are added task by task, in the order of their numbers. So a replay gives the same sums, to the last bit, only
if its tasks have the same rows. Spark cuts files by some of its settings and by the number of cores that the cluster
has just then; both may be others when the epoch is replayed. They are recorded with an epoch's config, and a start that
will replay one puts the recorded ones in place until the epoch is planned.

They are put into the user's session, since Spark plans files by the session in which the source was made. What else is
planned there meanwhile, for the second that a start takes, is cut into other tasks, which changes its speed alone.

Kafka's tasks follow from the offsets and the source's options alone; their numbers do not, and are not gone by
(``inspection.numbers_tasks``).

Threads: ``InputSplits`` belong to the start, and then to the thread of the epochs. One start at a time has its values
in place: another one, of a query of the same program, would take them for the user's own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from pyspark.sql import SparkSession

_PARALLELISM = "spark.sql.leafNodeDefaultParallelism"
_SETTINGS = (
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.files.openCostInBytes",
    "spark.sql.files.minPartitionNum",
    "spark.sql.files.maxPartitionNum",
    _PARALLELISM,
)
Splits = Mapping[str, str]
"""By their names the settings that decide it, with the values that they have, set or not."""

_WAIT_S = 60.0
"""For another start to have its epoch planned."""
_in_place = threading.Lock()
_log = logging.getLogger("tailrace")


class InputSplits:
    """Of the epochs of one run. ``recorded``: those of the epoch that it begins with, where that is replayed.

    ``shuffled``: into how many tasks rows are shuffled, with route shuffle; 0 without it.

    Settings are read once, since each costs a call to the JVM: a change while the query runs is not recorded.
    """

    def __init__(self, spark: SparkSession, shuffled: int, recorded: Splits | None = None) -> None:
        self._spark = spark
        self.shuffled = shuffled
        self._replaced: dict[str, str | None] = {}
        alone = _in_place.acquire(timeout=_WAIT_S)
        try:
            found = {name: spark.conf.get(name, None) for name in _SETTINGS}
            self._settings = {name: value for name, value in found.items() if value is not None}
            if recorded and alone:
                now = self.now()
                self._replaced = {name: found[name] for name in _SETTINGS if recorded.get(name) != now.get(name)}
                for name in self._replaced:
                    _put(spark, name, recorded.get(name))
        finally:
            if alone and not self._replaced:
                _in_place.release()
        if recorded and not alone:
            _log.warning(
                "an epoch is replayed with the tasks of today, since the start of another query has not come to its "
                "first epoch for %.0f s: sums of doubles may differ in their last digits",
                _WAIT_S,
            )

    def now(self) -> Splits:
        """Where the user has set no parallelism it is that of the cluster, which may change from epoch to epoch."""
        if _PARALLELISM in self._settings:
            return self._settings
        return {**self._settings, _PARALLELISM: str(self._spark.sparkContext.defaultParallelism)}

    def release(self, *others: SparkSession) -> None:
        """The epoch is planned: the session gets its own settings back, and so do those that were made of it meanwhile.

        Idempotent.
        """
        replaced, self._replaced = self._replaced, {}
        if not replaced:
            return
        try:
            for spark in (self._spark, *others):
                for name, value in replaced.items():
                    _put(spark, name, value)
        finally:
            _in_place.release()


def _put(spark: SparkSession, name: str, value: str | None) -> None:
    if value is None:
        spark.conf.unset(name)
    else:
        spark.conf.set(name, value)
