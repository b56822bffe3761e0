"""Shards that move with an epoch's begin: when the epoch before is durable, a few at a time, in first tries only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from tailrace.commit.manifest import Manifest
from tailrace.env import clock
from tailrace.errors import StateServerError
from tailrace.server.transport.server_config import ServerAddress
from tailrace.spark.epoch.shard_moves import ShardMoves
from tailrace.spark.servers.placement import Placement


def servers(*names: str) -> list[ServerAddress]:
    return [ServerAddress(name, f"grpc://{name}", "here", 1, 1, "", executor="7") for name in names]


class Fleet:
    """Each shard that moves takes a tenth of a second."""

    def __init__(self, now: list[float]) -> None:
        self.placement = Placement.even(servers("a", "b"), 64)
        self.wanted = servers("a", "b")
        self.next: Placement | None = None
        self.moved: list[int] = []
        self.failure: Exception | None = None
        self._now = now

    def begin_move(self, placement: Placement) -> None:
        self.next = placement

    def move(self, manifest: Manifest) -> None:
        if self.failure is not None:
            raise self.failure
        assert self.next is not None
        self._now[0] += 0.1 * self.next.gained(self.placement)
        self.moved.append(manifest.epoch)
        self.placement, self.next = self.next, None

    def end_move(self) -> None:
        self.next = None


class Commits:
    """``durable``: set when the epoch before is."""

    def __init__(self) -> None:
        self.durable = threading.Event()
        self.durable.set()

    def durable_later(self, epoch: int) -> Callable[[], Manifest]:
        def wait() -> Manifest:
            assert self.durable.wait(30)
            return Manifest(epoch, "run", 0)

        return wait


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [100.0]
    monkeypatch.setattr(clock, "monotonic", lambda: time[0])
    return time


@pytest.fixture
def fleet(now: list[float]) -> Fleet:
    return Fleet(now)


@pytest.fixture
def commits() -> Commits:
    return Commits()


@pytest.fixture
def moves(fleet: Fleet, commits: Commits) -> Iterator[ShardMoves]:
    made = ShardMoves(fleet, commits)  # type: ignore[arg-type]
    yield made
    made.close()


def test_nothing_moves_where_all_have_their_share(fleet: Fleet, moves: ShardMoves) -> None:
    with moves.during(5, 0, 1.0):
        assert fleet.next is None
    assert (moves.last.shards, fleet.moved) == (0, [])


def test_shards_move_when_the_epoch_before_is_durable(fleet: Fleet, commits: Commits, moves: ShardMoves) -> None:
    fleet.wanted = servers("a", "b", "c")
    commits.durable.clear()
    with moves.during(5, 0, 1.0):
        assert fleet.next is not None, "rows go to the new owners meanwhile"
        assert fleet.moved == []
        commits.durable.set()
    assert fleet.moved == [4] and fleet.next is None
    assert moves.last.shards == 1, "how long it takes is not known yet"
    assert moves.last.reason == "c on here (executor 7) has joined"
    assert moves.last.version == 1


def test_no_more_move_at_once_than_half_an_epoch_loads(fleet: Fleet, moves: ShardMoves) -> None:
    fleet.wanted = servers("a", "b", "c")
    shards = []
    for epoch in range(1, 30):
        with moves.during(epoch, 0, 2.0):
            pass
        shards.append(moves.last.shards)
    assert shards[0] == 1 and max(shards) <= 11 and sum(map(bool, shards)) <= 5
    assert fleet.placement.bounds == (0, 21, 42, 64)


def test_one_that_leaves_is_empty_after_a_few_epochs(fleet: Fleet, moves: ShardMoves) -> None:
    fleet.wanted = servers("a")
    for epoch in range(1, 20):
        with moves.during(epoch, 0, 0.01):
            pass
        assert moves.last.reason == "b on here (executor 7) leaves"
        if fleet.placement.servers == tuple(servers("a")):
            break
    assert epoch <= 10


def test_a_second_try_moves_nothing(fleet: Fleet, moves: ShardMoves) -> None:
    fleet.wanted = servers("a", "b", "c")
    with moves.during(5, 1, 1.0):
        assert fleet.next is None
    assert fleet.moved == []


def test_a_loss_while_shards_move_is_one_of_the_epoch(fleet: Fleet, moves: ShardMoves) -> None:
    fleet.wanted = servers("a", "b", "c")
    fleet.failure = StateServerError("c is lost")
    with pytest.raises(StateServerError, match="c is lost"), moves.during(5, 0, 1.0):
        pass
    assert fleet.next is None and fleet.placement.version == 0


def test_what_the_tasks_say_comes_first_and_the_move_is_over_before(fleet: Fleet, moves: ShardMoves) -> None:
    fleet.wanted = servers("a", "b", "c")
    fleet.failure = StateServerError("c is lost")
    with pytest.raises(ValueError, match="a task"), moves.during(5, 0, 1.0):
        raise ValueError("a task has failed")
    assert fleet.next is None
