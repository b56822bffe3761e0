"""``spark.streams`` gives Tailrace's queries as they were started, and not Spark's underneath.

Stopping the one underneath would return before the commits that have begun are finished and the servers and the lock
are gone; its errors are text; and where a lost server costs another start, it has failed though the query goes on.

PySpark's ``StreamingQueryManager`` is changed once in a process, when the first query is started. For queries of
Spark's it does what it did.

Threads: any.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery as SparkQuery
from pyspark.sql.streaming import StreamingQueryManager

from tailrace.env import clock
from tailrace.spark.private import belongs_to
from tailrace.spark.query.query import StreamingQuery, started_queries


@cache
def replace_stream_manager() -> None:
    sparks: Any = StreamingQueryManager
    sparks_active, sparks_wait = sparks.active.fget, sparks.awaitAnyTermination

    def active(manager: StreamingQueryManager) -> list[SparkQuery]:
        """The queries of the session that are active, also while they start again after a loss."""
        ours = [each for each in started_queries() if each.isActive]
        found = [_as_started(each, ours) for each in sparks_active(manager)]
        restarting = [each for each in ours if each not in found and belongs_to(each, manager)]
        return [*found, *restarting]

    def get(manager: StreamingQueryManager, id: str) -> SparkQuery | None:
        """The active query of this id, or None."""
        return next((each for each in manager.active if each.id == id), None)

    def await_any_termination(manager: StreamingQueryManager, timeout: float | None = None) -> bool | None:
        """Wait until a query of the session has ended. One that starts again after a loss has not."""
        began, left = clock.monotonic(), timeout
        while True:
            try:
                ended: bool | None = sparks_wait(manager, left)
                return ended
            except StreamingQueryException as error:
                if not any(each.outlives(error) for each in started_queries()):
                    raise
            manager.resetTerminated()
            left = None if timeout is None else max(0.0, began + timeout - clock.monotonic())

    sparks.active, sparks.get, sparks.awaitAnyTermination = property(active), get, await_any_termination


def _as_started(query: SparkQuery, ours: list[StreamingQuery]) -> SparkQuery:
    return next((each for each in ours if each.is_over(query)), query)
