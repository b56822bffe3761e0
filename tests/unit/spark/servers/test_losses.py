"""How long a query goes on after losses: by the time without progress, on a clock of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from tailrace.env import clock, tasks
from tailrace.errors import QueryStopped, StateServerError
from tailrace.spark.servers.losses import LOSSES_LEAST, PAUSE_S_MAX, RetryBudget, one_line

LOST = StateServerError("server s1 was lost")


class Hurried(clock.SystemClock, tasks.SystemTasks):
    """Time passes only by waiting."""

    def __init__(self) -> None:
        self.at = 0.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.at

    def event(self) -> tasks.Event:
        hurried = self

        class Event(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                assert timeout is not None
                hurried.pauses.append(timeout)
                hurried.at += timeout
                return self.is_set()

        return Event()


@pytest.fixture
def hurried() -> Iterator[Hurried]:
    made = Hurried()
    with clock.use(made), tasks.use(made):
        yield made


def losses_until_the_end(budget: RetryBudget) -> int:
    for number in range(1, 10_000):
        try:
            budget.lost("epoch 7, try 0", LOST)
        except StateServerError as error:
            assert error is LOST
            return number
    raise AssertionError("it never ends")


def test_losses_end_a_query_after_the_time_and_not_after_a_number(hurried: Hurried) -> None:
    count = losses_until_the_end(RetryBudget(600))
    assert count > 20
    assert 600 <= hurried.at < 600 + PAUSE_S_MAX


def test_pauses_grow_and_there_is_none_after_the_first_loss(hurried: Hurried) -> None:
    losses_until_the_end(RetryBudget(600))
    first, *_, last = hurried.pauses
    assert first <= 0.1 and PAUSE_S_MAX / 2 <= last <= PAUSE_S_MAX
    assert len(set(hurried.pauses[-10:])) > 1, "not all at the same moment"


def test_time_counts_from_the_first_loss_and_not_while_nothing_is_lost(hurried: Hurried) -> None:
    budget = RetryBudget(600)
    budget.progress(3)
    hurried.at += 100_000
    for _ in range(LOSSES_LEAST):
        budget.lost("epoch 4, try 0", LOST)
    assert not budget.spent


def test_an_epoch_that_is_done_begins_anew_and_one_that_is_replayed_does_not(hurried: Hurried) -> None:
    budget = RetryBudget(600)
    for epoch in range(5):
        for _ in range(LOSSES_LEAST):
            budget.lost("here", LOST)
        hurried.at += 599
        budget.progress(epoch)
    for _ in range(LOSSES_LEAST):
        budget.lost("here", LOST)
        hurried.at += 250
        budget.progress(4)
    with pytest.raises(StateServerError):
        budget.lost("here", LOST)


def test_a_few_losses_never_end_it_however_long_tries_take(hurried: Hurried) -> None:
    budget = RetryBudget(600)
    for _ in range(LOSSES_LEAST - 1):
        budget.lost("here", LOST)
        hurried.at += 3600
    assert not budget.spent
    with pytest.raises(StateServerError):
        budget.lost("here", LOST)


def test_the_end_says_which_option_it_was(hurried: Hurried) -> None:
    error = StateServerError("server s2 was lost")
    budget = RetryBudget(1)
    with pytest.raises(StateServerError) as caught:
        while True:
            budget.lost("here", error)
    assert "recoveryTimeout" in caught.value.__notes__[0]


def test_a_loss_is_one_line_of_the_log(hurried: Hurried, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tailrace"):
        RetryBudget(600).lost("epoch 7, try 0", RuntimeError("job failed\n\tat org.apache.Spark\n\tat java.lang"))
    assert len(caplog.records) == 1 and len(caplog.messages[0].splitlines()) == 1
    assert "epoch 7, try 0" in caplog.messages[0] and "job failed" in caplog.messages[0]
    assert caplog.records[0].exc_info is None
    assert one_line(RuntimeError()) == "RuntimeError"


def test_a_stop_ends_the_pause() -> None:
    budget = RetryBudget(600)
    stopping = threading.Timer(0.05, budget.stop)
    stopping.start()
    with pytest.raises(QueryStopped, match="server s1"):
        while True:
            budget.lost("here", LOST)
    stopping.join()
