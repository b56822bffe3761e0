"""A started query: Spark's own, plus the servers, the lock and the progress that belong to it.

Whatever ends the query (``stop``, an error, the end of ``availableNow``, the end of the interpreter), a watching thread
releases all of it, once: commits that have begun are finished first. ``stop`` and ``awaitTermination`` return only
after that.

Where a state server was lost together with an epoch that Spark has committed and that was not durable yet, the
watching thread starts the query again: the new start rewinds Spark to that epoch. So Spark's query underneath, its
``runId`` too, is another one then. A server that is lost meanwhile is a loss as any other (``servers.losses``): the
start is repeated until the query's budget is spent.
"""

from __future__ import annotations

import atexit
import json
import logging
import re
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery as SparkQuery

from tailrace.errors import QueryStopped, RewindNeeded, StateServerError, TailraceError
from tailrace.spark.epoch.progress import EpochProgress, Epochs
from tailrace.spark.epoch.runner import PROGRESS_KEPT
from tailrace.spark.hints.lookahead import lookahead_lines
from tailrace.spark.private import QueryOverSparks
from tailrace.spark.query.offsets import offset_lines
from tailrace.spark.servers.losses import RetryBudget, one_line

_RELEASE_TIMEOUT_S = 30.0
_LOOK_S = 0.05
_log = logging.getLogger("tailrace")
_CHANGED_BY_OTHERS = re.compile(
    r"Multiple streaming jobs detected|BATCH_METADATA_NOT_FOUND|batch \d+ doesn't exist|doesn't exist \(latestId: "
)
"""Of Spark's errors: an entry of its logs is there before it has written it, or is gone."""
_Run = TypeVar("_Run")


class _WithoutRewinds(logging.Filter):
    """Py4J logs what a batch function raises, with its traceback. A rewind is a line of our own."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.exc_info is None or not isinstance(record.exc_info[1], RewindNeeded)


_WITHOUT_REWINDS = _WithoutRewinds()
_PY4J_LOGS = ("py4j.clientserver", "py4j.java_gateway")


def started_again(check_newest: Callable[[], None], start: Callable[[], _Run], budget: RetryBudget) -> _Run:
    """Another run, from the log. A server that is lost while it starts is a loss as any other.

    ``check_newest``: of the run before. One that stood still and was replaced meanwhile must not take the query back.
    """
    check_newest()
    while True:
        try:
            return start()
        except StateServerError as error:
            budget.lost("while the query started again", error)


def last_epoch_lost(error: BaseException) -> BaseException:
    """What the failed commit of a run's last epoch means: a server that was lost with it costs another start."""
    if isinstance(error, StateServerError):
        return RewindNeeded(f"the last epoch was lost with a state server: {error}")
    return error


def written_by_others(error: BaseException) -> bool:
    """Whether Spark has ended its query since somebody else has written an entry of its logs, or taken one away."""
    return _CHANGED_BY_OTHERS.search(str(error)) is not None


class Failure:
    """The error that ended an epoch, kept as it was: Spark turns it into text."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.stopped = False  # by the user

    @property
    def comes_again(self) -> bool:
        """Whether the query has ended in a way that asks for another start."""
        return self.error is not None and not self.stopped

    def keeping(self, run_epoch: Callable[[DataFrame, int], object]) -> Callable[[DataFrame, int], None]:
        """Spark's batch function, which keeps the error of an epoch that fails."""

        def run(batch: DataFrame, epoch: int) -> None:
            try:
                run_epoch(batch, epoch)
            except BaseException as error:
                self.error = error
                raise

        return run


@dataclass(frozen=True)
class Running:
    """One run of a query. ``release`` ends what belongs to it, and raises where commits could not be finished.

    ``check_newest`` raises ``FencedError`` where another run has taken over.
    """

    query: SparkQuery
    epochs: Epochs
    plan_text: str
    failure: Failure
    release: Callable[[], None]
    check_newest: Callable[[], None]

    def loss(self) -> RewindNeeded | None:
        """Why it has ended, where another run goes on."""
        if self.failure.error is not None:
            return self.failure.error if isinstance(self.failure.error, RewindNeeded) else None
        found = self.query.exception()
        if found is None or not written_by_others(found):
            return None
        return RewindNeeded(
            "somebody else has changed Spark's logs: the JVM of a driver that was killed, a driver that was replaced, "
            "or a newer run. The query starts again, unless it was replaced"
        )


class StreamingQuery(QueryOverSparks):
    """PySpark's ``StreamingQuery``. ``again`` starts another run where the last one can continue from its log."""

    def __init__(self, running: Running, again: Callable[[], Running], budget: RetryBudget) -> None:
        super().__init__(lambda: self._running.query)
        self._running = running
        self._earlier: list[str] = []  # runs of Spark's: their ids, since a run holds its plan in the JVM
        self._again = again
        self._budget = budget
        self._past: list[EpochProgress] = []  # of earlier runs
        self._error: BaseException | None = None  # of a start again, or of commits that could not be finished
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._at_end: list[Callable[[], None]] = []
        for name in _PY4J_LOGS:
            logging.getLogger(name).addFilter(_WITHOUT_REWINDS)
        self._watcher = threading.Thread(target=self._watch, name="tailrace-watch", daemon=True)
        self._watcher.start()
        _active.add(self)

    @property
    def id(self) -> str:
        """Stays the same over restarts from one checkpoint."""
        return str(self._running.query.id)

    @property
    def runId(self) -> str:
        return str(self._running.query.runId)

    @property
    def name(self) -> str | None:  # type: ignore[override]
        return self._running.query.name

    @property
    def isActive(self) -> bool:
        if self._ended.is_set():
            return False
        return bool(self._running.query.isActive) or self._starts_again(self._running)

    @property
    def status(self) -> dict[str, Any]:
        return dict(self._running.query.status)

    @property
    def lastProgress(self) -> EpochProgress | None:  # type: ignore[override]
        """The newest finished epoch, or None before the first."""
        progress = self.recentProgress
        return progress[-1] if progress else None

    @property
    def recentProgress(self) -> list[EpochProgress]:  # type: ignore[override]
        """The newest 100 epochs, oldest first."""
        epochs = [*self._past, *self._running.epochs.progress][-PROGRESS_KEPT:]
        if not all(each.spark for each in epochs):  # the listeners' thread has not come to it yet
            theirs = {each["batchId"]: each for each in self._running.query.recentProgress}
            for each in epochs:
                if not each.spark and each.epoch in theirs:
                    each.spark.update(json.loads(theirs[each.epoch].json))
        return epochs

    @property
    def sparkQuery(self) -> SparkQuery:
        """Spark's own query underneath, for what it reports of sources."""
        return self._running.query

    def explain(self, extended: bool = False) -> None:
        """Print which operator got which store and why, and how far each source was read.

        ``extended`` adds Spark's own plan.
        """
        print(self._running.plan_text)
        for line in lookahead_lines(self._running.epochs.lookaheads()):
            print(line)
        for line in offset_lines(self._running.query.lastProgress):
            print(line)
        if extended:
            self._running.query.explain(True)

    def exception(self) -> BaseException | None:  # type: ignore[override]
        """Why the query ended, or None."""
        if self._error is not None or self._starts_again(self._running) or self._was_stopped:
            return self._error
        found: BaseException | None = self._running.query.exception()
        # Ours says more, but only where Spark calls it a failure: stopping interrupts an epoch too.
        error = self._running.failure.error
        return error if found is not None and error is not None else found

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait for the end; raise the error that caused it, if one did."""
        ended = self._ended.wait(timeout)
        if ended:
            error = self._error or self._running.failure.error
            found = None if self._was_stopped else self._running.query.exception()
            if self._error is not None or (found is not None and isinstance(error, TailraceError)):
                assert error is not None
                raise error
            if found is not None:
                raise found
        return None if timeout is None else ended

    def processAllAvailable(self) -> None:
        """Wait until all that the source has now is done. For tests."""
        while True:
            running = self._running
            try:
                running.query.processAllAvailable()
                return
            except StreamingQueryException as error:
                while self._starts_again(running) and running is self._running:
                    self._ended.wait(_LOOK_S)
                if running is not self._running:
                    continue
                cause = self._error or running.failure.error
                if isinstance(cause, TailraceError):
                    raise cause from None
                raise error

    def stop(self) -> None:
        """Stop, finish the commits that have begun, and release the servers and the checkpoint."""
        self._stopping.set()
        self._budget.stop()
        self._running.failure.stopped = True
        self._running.epochs.stop()
        self._running.query.stop()
        self._ended.wait(_RELEASE_TIMEOUT_S)

    def when_ended(self, action: Callable[[], None]) -> None:
        """Once all that belongs to the query is released. More than once is as good as once."""
        self._at_end.append(action)
        if self._ended.is_set():
            action()

    def is_over(self, run: SparkQuery) -> bool:
        """Whether it is this query that runs, or has run, over Spark's."""
        return run.runId in (self._running.query.runId, *self._earlier)

    def outlives(self, error: StreamingQueryException) -> bool:
        """Whether it goes on after the run that has ended by this error. Waits until that is known."""
        running = self._running
        if running.query.runId in str(error):
            while running is self._running and self._starts_again(running):
                self._ended.wait(_LOOK_S)
            return running is not self._running
        return any(each in str(error) for each in self._earlier)

    @property
    def _was_stopped(self) -> bool:
        """While an epoch waited, or before the query had started again: Spark takes that for a failure."""
        if isinstance(self._running.failure.error, QueryStopped):
            return True
        return self._stopping.is_set() and self._running.loss() is not None

    def _watch(self) -> None:
        try:
            while True:
                try:
                    self._running.query.awaitTermination()
                except Exception:
                    pass  # the user's thread gets it from awaitTermination or exception()
                self._release()
                if not self._starts_again(self._running) or not self._start_again():
                    return
        except Exception as error:  # whoever waits for the query, or asks it, hears the same
            _log.warning("the query has ended, and Spark does not answer any more: %s", one_line(error))
        finally:
            self._end()

    def _end(self) -> None:
        try:
            for action in self._at_end:
                action()
        finally:
            self._ended.set()

    def _starts_again(self, running: Running) -> bool:
        """Whether the watching thread answers this run's end by another run, or has not yet given that up."""
        return not self._stopping.is_set() and not self._ended.is_set() and running.loss() is not None

    def _start_again(self) -> bool:
        """Whether another run was started."""
        past = self._running
        loss = past.loss()
        assert loss is not None
        try:
            self._budget.lost("the query starts again", loss)
            running = started_again(past.check_newest, self._again, self._budget)
        except QueryStopped:
            return False
        except Exception as error:
            self._error = error
            return False
        self._earlier.append(past.query.runId)
        self._past, self._running = self.recentProgress, running
        if self._stopping.is_set():
            running.failure.stopped = True
            running.epochs.stop()
            running.query.stop()
        return True

    def _release(self) -> None:
        running = self._running
        try:
            running.release()
        except Exception as error:
            if running.query.exception() is not None:
                return  # the query has failed anyway, and the next start goes on from the log
            if self._stopping.is_set():
                _log.warning("the last epoch is not durable, and will be run again by the next start: %s", error)
            elif isinstance(lost := last_epoch_lost(error), RewindNeeded):
                running.failure.error = lost
            else:
                self._error = error

    def _release_once(self) -> None:
        """At the end of the interpreter, where Spark does not answer any more."""
        if not self._ended.is_set():
            try:
                self._running.release()
            finally:
                self._end()


_active: weakref.WeakSet[StreamingQuery] = weakref.WeakSet()


def started_queries() -> list[StreamingQuery]:
    """Of this process: those that are active, and those that somebody still holds."""
    return list(_active)


@atexit.register
def _stop_all() -> None:
    """At the end of the interpreter Spark's gateway may be gone; the servers must go anyway."""
    for query in list(_active):
        try:
            if query.isActive:
                query.stop()
        except Exception:
            query._release_once()
