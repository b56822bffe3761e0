"""A started query: Spark's own, plus the servers, the lock and the progress that belong to it.

Whatever ends the query (``stop``, an error, the end of ``availableNow``, the end of the interpreter), a watching thread
releases all of it, once. ``stop`` and ``awaitTermination`` return only after that.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery as SparkQuery

from tailrace.errors import TailraceError
from tailrace.spark.epochs import Epochs
from tailrace.spark.progress import EpochProgress

_RELEASE_TIMEOUT_S = 30.0


class Failure:
    """The error that ended an epoch, kept as it was: Spark turns it into text."""

    def __init__(self) -> None:
        self.error: BaseException | None = None


class StreamingQuery:
    """As PySpark's ``StreamingQuery``."""

    def __init__(
        self, spark_query: SparkQuery, epochs: Epochs, plan_text: str, failure: Failure, release: Callable[[], None]
    ) -> None:
        self._query = spark_query
        self._epochs = epochs
        self._plan_text = plan_text
        self._failure = failure
        self._release = release
        self._released = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="tailrace-watch", daemon=True)
        self._watcher.start()
        _active.add(self)

    @property
    def id(self) -> str:
        """Stays the same over restarts from one checkpoint."""
        return str(self._query.id)

    @property
    def runId(self) -> str:
        return str(self._query.runId)

    @property
    def name(self) -> str | None:
        return self._query.name

    @property
    def isActive(self) -> bool:
        return bool(self._query.isActive)

    @property
    def status(self) -> dict[str, Any]:
        return dict(self._query.status)

    @property
    def lastProgress(self) -> EpochProgress | None:
        """The newest finished epoch, or None before the first."""
        progress = self._epochs.progress
        return progress[-1] if progress else None

    @property
    def recentProgress(self) -> list[EpochProgress]:
        """The newest 100 epochs, oldest first."""
        return list(self._epochs.progress)

    @property
    def sparkQuery(self) -> SparkQuery:
        """Spark's own query underneath, for what it reports of sources."""
        return self._query

    def explain(self, extended: bool = False) -> None:
        """Print which operator got which store and why; ``extended`` adds Spark's own plan."""
        print(self._plan_text)
        if extended:
            self._query.explain(True)

    def exception(self) -> BaseException | None:
        """Why the query ended, or None."""
        found: BaseException | None = self._query.exception()
        # Ours says more, but only where Spark calls it a failure: stopping interrupts an epoch too.
        return self._failure.error if found is not None and self._failure.error is not None else found

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait for the end; raise the error that caused it, if one did."""
        try:
            # Annotated as whole seconds, but fractions are taken and mean what they say.
            ended = self._query.awaitTermination(timeout)  # type: ignore[arg-type]
        except StreamingQueryException as error:
            self._released.wait(_RELEASE_TIMEOUT_S)
            if isinstance(self._failure.error, TailraceError):
                raise self._failure.error from None
            raise error
        if timeout is None or ended:
            self._released.wait(_RELEASE_TIMEOUT_S)
        return ended

    def processAllAvailable(self) -> None:
        """Wait until all that the source has now is done. For tests."""
        try:
            self._query.processAllAvailable()
        except StreamingQueryException as error:
            if isinstance(self._failure.error, TailraceError):
                raise self._failure.error from None
            raise error

    def stop(self) -> None:
        """Stop, and release the servers and the checkpoint."""
        self._query.stop()
        self._released.wait(_RELEASE_TIMEOUT_S)

    def _watch(self) -> None:
        try:
            self._query.awaitTermination()
        except Exception:
            pass  # the user's thread gets it from awaitTermination or exception()
        finally:
            self._release_once()

    def _release_once(self) -> None:
        if not self._released.is_set():
            try:
                self._release()
            finally:
                self._released.set()


_active: weakref.WeakSet[StreamingQuery] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """At the end of the interpreter Spark's gateway may be gone; the servers must go anyway."""
    for query in list(_active):
        try:
            if query.isActive:
                query.stop()
        except Exception:
            query._release_once()
