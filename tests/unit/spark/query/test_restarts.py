"""A query that starts again after a loss, also where servers are lost while it starts. Spark's query is a stand-in."""

from __future__ import annotations

import gc
import logging
import threading
import time
import uuid
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.errors import CheckpointError, FencedError, RewindNeeded, StateServerError
from tailrace.spark.query.query import Failure, Running, StreamingQuery
from tailrace.spark.servers.losses import RetryBudget

REWIND = RewindNeeded("epoch 3 was lost with its server")


class SparkQuery:
    def __init__(self) -> None:
        self.runId = str(uuid.uuid4())
        self.ended = threading.Event()
        self.error: Exception | None = None

    @property
    def isActive(self) -> bool:
        return not self.ended.is_set()

    def awaitTermination(self) -> None:
        self.ended.wait()

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.ended.set()


class Epochs:
    progress: tuple[Any, ...] = ()

    def stop(self) -> None:
        pass


def running(error: Exception | None = None, check_newest: Callable[[], None] = lambda: None) -> Running:
    """One that has ended by this error already, or goes on."""
    query, failure = SparkQuery(), Failure()
    if error is not None:
        query.error = failure.error = error
        query.ended.set()
    made: Any = query
    epochs: Any = Epochs()
    return Running(made, epochs, "plan", failure, lambda: None, check_newest)


class Starts:
    """What the starts after the first give, one after the other."""

    def __init__(self, *outcomes: Running | Exception) -> None:
        self.outcomes = list(outcomes)
        self.used_up = threading.Event()

    def __call__(self) -> Running:
        outcome = self.outcomes.pop(0)
        if not self.outcomes:
            self.used_up.set()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def started(again: Callable[[], Running], limit_s: float = 60) -> StreamingQuery:
    return StreamingQuery(running(REWIND), again, RetryBudget(limit_s))


def test_a_loss_while_it_starts_again_is_a_loss_as_any_other() -> None:
    again = Starts(
        StateServerError("lost"), StateServerError("lost"), running(REWIND), StateServerError("lost"), running()
    )
    query = started(again)
    assert again.used_up.wait(30)
    assert query.isActive and query.exception() is None
    query.stop()
    query.awaitTermination()
    assert query.exception() is None


def test_a_run_that_is_over_is_not_held() -> None:
    """Spark's query holds its plan, in the JVM: one that starts again for months must not keep all of them."""
    ended = running(REWIND)
    gone, run = weakref.ref(ended.query), ended.query.runId
    again = Starts(running())
    query = StreamingQuery(ended, again, RetryBudget(60))
    del ended
    assert again.used_up.wait(30)
    while query.runId == run:
        time.sleep(0.01)
    gc.collect()
    assert gone() is None
    query.stop()


def test_what_is_no_loss_ends_it() -> None:
    query = started(Starts(CheckpointError("the state was made by another query")))
    with pytest.raises(CheckpointError):
        query.awaitTermination()
    assert not query.isActive


def test_one_that_was_replaced_does_not_take_the_query_back() -> None:
    def replaced() -> None:
        raise FencedError("another run has taken over")

    again = Starts(running())
    query = StreamingQuery(running(REWIND, replaced), again, RetryBudget(60))
    with pytest.raises(FencedError):
        query.awaitTermination(30)
    assert again.outcomes, "it was not started again"


OTHERS = RuntimeError(
    "[STREAM_FAILED] java.util.ConcurrentModificationException: [CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to "
    "the log. Multiple streaming jobs detected for 3."
)


GONE = RuntimeError(
    "[STREAM_FAILED] java.lang.IllegalStateException: s3a://bucket/check/sources/0/1 doesn't exist (latestId: 3, "
    "compactInterval: 10)"
)


@pytest.mark.parametrize("error", [OTHERS, GONE], ids=["written", "gone"])
def test_what_others_do_to_sparks_logs_costs_another_start(error: Exception) -> None:
    """Spark finds an entry in its logs that it was about to write, or misses one, and ends its query."""
    ended = running()
    ended.query.error = error  # type: ignore[attr-defined]
    ended.query.stop()
    again = Starts(running())
    query = StreamingQuery(ended, again, RetryBudget(60))
    assert again.used_up.wait(30)
    assert query.isActive and query.exception() is None
    query.stop()
    query.awaitTermination()


def test_a_run_that_was_replaced_says_so_where_spark_finds_what_its_successor_has_written() -> None:
    def replaced() -> None:
        raise FencedError("another run has taken over")

    ended = running(check_newest=replaced)
    ended.query.error = OTHERS  # type: ignore[attr-defined]
    ended.query.stop()
    with pytest.raises(FencedError, match="taken over"):
        StreamingQuery(ended, Starts(), RetryBudget(60)).awaitTermination()


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_where_sparks_jvm_is_gone_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_: SparkQuery) -> None:
        raise ConnectionRefusedError("the gateway is gone")

    monkeypatch.setattr(SparkQuery, "exception", refused)
    ended = running()
    ended.query.stop()
    query = StreamingQuery(ended, Starts(), RetryBudget(60))
    query._watcher.join(30)
    assert not query.isActive
    assert [each.getMessage() for each in caplog.records] == [
        "the query has ended, and Spark does not answer any more: the gateway is gone"
    ]


def test_losses_without_an_end_do() -> None:
    lost = StateServerError("lost")

    def again() -> Running:
        raise lost

    query = started(again, limit_s=0.1)
    with pytest.raises(StateServerError, match="lost"):
        query.awaitTermination(30)
    assert not query.isActive


def test_a_stop_meanwhile_ends_it_without_an_error() -> None:
    asked = threading.Event()

    def again() -> Running:
        asked.set()
        raise StateServerError("lost")

    query = started(again, limit_s=3600)
    assert asked.wait(30)
    query.stop()
    query.awaitTermination()
    assert query.exception() is None and not query.isActive


def test_py4j_logs_no_traceback_of_a_rewind(caplog: pytest.LogCaptureFixture) -> None:
    query = started(Starts(running()))
    log = logging.getLogger("py4j.clientserver")
    for error in (REWIND, ValueError("the sink's own")):
        try:
            raise error
        except Exception:
            log.exception("There was an exception while executing the Python Proxy on the Python Side.")
    shown = [record.exc_info[1] for record in caplog.records if record.name == log.name and record.exc_info]
    assert [str(error) for error in shown] == ["the sink's own"]
    query.stop()
