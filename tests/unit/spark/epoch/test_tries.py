"""What is a loss of a server and what is not; and that every try has a number of its own."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.errors import (
    CorruptionError,
    FencedError,
    QueryStopped,
    RewindNeeded,
    StateServerError,
    TableError,
    UserFunctionError,
)
from tailrace.spark.epoch.tries import EpochTries
from tailrace.spark.servers.losses import RetryBudget


class Fleet:
    def __init__(self) -> None:
        self.cancels = 0
        self.alive = True
        self.recovered: list[tuple[str, int]] = []

    def raise_given_up(self) -> None:
        pass

    def all_alive(self) -> bool:
        return self.alive

    def recover(self, manifest: str, try_: int) -> None:
        self.recovered.append((manifest, try_))


class Commits:
    def __init__(self, replaced: bool = False) -> None:
        self.replaced = replaced

    def base_of_retry(self, epoch: int) -> str:
        return f"manifest {epoch - 1}"

    def check_newest(self) -> None:
        if self.replaced:
            raise FencedError("a newer run has taken over")


class Sink:
    """Fails with these errors, one a try; then it is done."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors = list(errors)
        self.tries: list[int] = []

    def __call__(self, try_: int) -> str:
        self.tries.append(try_)
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        return "done"


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def tries(fleet: Fleet, replaced: bool = False) -> EpochTries:
    commits: Any = Commits(replaced)
    given: Any = fleet
    return EpochTries(given, commits, RetryBudget(60))


CANCELLED = RuntimeError("org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 3 cancelled part of job group")
TASK = RuntimeError(
    "Job aborted: Traceback\n  File x\ntailrace.errors.StateServerError: s1 cannot be reached\n\tat o.a"
)


def test_every_try_has_its_own_number_and_starts_from_the_epoch_before(fleet: Fleet) -> None:
    sink = Sink(StateServerError("lost"), StateServerError("lost"))
    assert tries(fleet).run(7, sink) == "done"
    assert sink.tries == [0, 1, 2]
    assert fleet.recovered == [("manifest 6", 1), ("manifest 6", 2)]


@pytest.mark.parametrize(
    "error",
    [UserFunctionError("f"), TableError("t"), RewindNeeded("r"), QueryStopped("s"), ValueError("the sink's own")],
)
def test_what_is_no_loss_is_raised_as_it_is(fleet: Fleet, error: Exception) -> None:
    sink = Sink(error)
    with pytest.raises(type(error)) as caught:
        tries(fleet).run(0, sink)
    assert caught.value is error and sink.tries == [0]


def test_any_error_is_a_loss_while_a_server_does_not_answer(fleet: Fleet) -> None:
    fleet.alive = False
    assert tries(fleet).run(0, Sink(ValueError("the sink could not read its rows"))) == "done"


def test_a_task_that_cannot_reach_a_server_is_a_loss(fleet: Fleet) -> None:
    assert tries(fleet).run(0, Sink(TASK)) == "done"


def test_a_job_that_we_cancelled_is_a_loss_whatever_else_is_known_by_then(fleet: Fleet) -> None:
    """The server was given up, and replaced, before the try began that the cancel hits."""
    fleet.cancels = 1
    assert tries(fleet).run(0, Sink(CANCELLED)) == "done"
    own = ValueError("the sink puts its own error around it")
    own.__cause__ = CANCELLED
    assert tries(fleet).run(0, Sink(own)) == "done"


def test_two_cancels_explain_two_jobs(fleet: Fleet) -> None:
    """Sent for two servers at once, each hits a try of its own."""
    fleet.cancels = 2
    assert tries(fleet).run(0, Sink(CANCELLED, CANCELLED)) == "done"


def test_a_job_that_somebody_else_cancelled_is_none(fleet: Fleet) -> None:
    with pytest.raises(RuntimeError, match="SPARK_JOB_CANCELLED"):
        tries(fleet).run(0, Sink(CANCELLED))
    fleet.cancels = 1
    running = tries(fleet)
    running.run(0, Sink(CANCELLED))
    with pytest.raises(RuntimeError, match="SPARK_JOB_CANCELLED"):
        running.run(1, Sink(CANCELLED))


def test_a_run_that_misses_what_a_newer_one_has_deleted_says_that_it_was_replaced(fleet: Fleet) -> None:
    missing = CorruptionError("objects/1.delta is damaged: it is missing")
    with pytest.raises(FencedError):
        tries(fleet, replaced=True).run(7, Sink(missing))
    with pytest.raises(CorruptionError):
        tries(fleet).run(7, Sink(missing))
