"""Commits of one run, with real commits and a fleet that fails when it is told to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.spark_logs import spark_logs
from tailrace.api.options import CommitMode
from tailrace.commit.controller import Controller
from tailrace.env.local_store import LocalStore
from tailrace.errors import CheckpointError, RewindNeeded, StateServerError
from tailrace.server.protocol import CommitResult
from tailrace.spark.commits import Commits, Order

EVERY = list(CommitMode)


class Fleet:
    """One server. ``broken``: what a commit of an epoch raises."""

    def __init__(self) -> None:
        self.broken: dict[tuple[int, int], Exception] = {}
        self.asked: list[str] = []

    def each(self, call: Callable[[Any, int], Any]) -> list[Any]:
        return [call(self, 0)]

    def commit(self, epoch: int, try_: int) -> CommitResult:
        if (epoch, try_) in self.broken:
            raise self.broken[epoch, try_]
        return CommitResult(None, (), {}, 0.0)

    def fold(self, objects: object, epoch: int, horizons: object) -> None:
        self.asked.append(f"fold {epoch}")

    def forget(self, epoch: int) -> None:
        self.asked.append(f"forget {epoch}")


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    made = Controller.start(LocalStore(tmp_path), {"q": 1}, spark_logs())
    yield made
    made.close()


def order(epoch: int, try_: int = 0) -> Order:
    return Order(epoch, try_, {}, {"input": 1}, {})


def epoch(commits: Commits, number: int, try_: int = 0) -> None:
    commits.begin(order(number, try_))
    commits.gate(number)
    commits.finished()


@pytest.mark.parametrize("mode", EVERY)
def test_all_is_durable_at_the_end_and_cleaned_behind(controller: Controller, fleet: Fleet, mode: CommitMode) -> None:
    commits = Commits(controller, fleet, mode)  # type: ignore[arg-type]
    for number in range(4):
        epoch(commits, number)
        assert controller.durable >= (number if mode is CommitMode.SYNC else number - 1), "the gate"
    assert commits.close() is None
    assert controller.durable == 3
    assert fleet.asked == [f"{what} {number}" for number in range(4) for what in ("fold", "forget")]


@pytest.mark.parametrize("mode", EVERY)
def test_a_try_whose_commit_was_lost_is_followed_by_another(
    controller: Controller, fleet: Fleet, mode: CommitMode
) -> None:
    """The epoch's own commit fails: that must not fail its next try."""
    commits = Commits(controller, fleet, mode)  # type: ignore[arg-type]
    epoch(commits, 0)
    fleet.broken[1, 0] = StateServerError("lost")
    try:
        commits.begin(order(1))
        commits.gate(1)
    except StateServerError:
        assert mode is not CommitMode.ASYNC, "whose gate does not wait for it; its sink has lost the server"
    assert commits.base(1).epoch == 0
    assert commits.made(1) is None
    epoch(commits, 1, 1)
    epoch(commits, 2)
    assert commits.close() is None
    assert controller.durable == 2


def test_an_epoch_lost_behind_its_sink_cannot_be_built_on(controller: Controller, fleet: Fleet) -> None:
    commits = Commits(controller, fleet, CommitMode.ASYNC)  # type: ignore[arg-type]
    epoch(commits, 0)
    fleet.broken[1, 0] = StateServerError("lost")
    epoch(commits, 1)
    commits.settle()
    with pytest.raises(StateServerError, match="lost"):
        commits.begin(order(2))
    with pytest.raises(RewindNeeded, match="epoch 1"):
        commits.base(2)
    assert isinstance(commits.close(), StateServerError)
    assert controller.durable == 0


def test_a_store_that_fails_is_told_as_it_is(controller: Controller, fleet: Fleet) -> None:
    commits = Commits(controller, fleet, CommitMode.ASYNC)  # type: ignore[arg-type]
    fleet.broken[0, 0] = CheckpointError("disk full")
    epoch(commits, 0)
    commits.settle()
    for step in (lambda: commits.begin(order(1)), lambda: commits.gate(1), lambda: commits.base(1)):
        with pytest.raises(CheckpointError, match="disk full"):
            step()
    assert isinstance(commits.close(), CheckpointError)
