"""Which servers a fleet counts as living, which it suspects, whom it waits for, and that it ends all it ever met."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from support.processes import wait_until
from tailrace.commit.manifest import Manifest
from tailrace.errors import StateServerError, UnansweredError
from tailrace.server.transport.server_config import Access, ServerAddress, ServerConfig
from tailrace.spark.servers import fleet as fleet_module
from tailrace.spark.servers.fleet import Fleet
from tailrace.spark.servers.losses import RetryBudget

SHARDS = 8
HEARTBEAT_S = 0.25


def server(name: str, uri: str | None = None) -> ServerAddress:
    return ServerAddress(name, uri or f"grpc://{name}", "here", 1, 1, "")


class World:
    """Servers as the driver meets them: who listens at which address, and whom the next tasks will meet."""

    def __init__(self) -> None:
        self.listening: dict[str, str] = {}  # uri -> id; missing: nobody answers there
        self.met: list[ServerAddress] = []
        self.suspects: list[set[str]] = []
        self.opened: list[tuple[str, range]] = []
        self.moved: list[str] = []
        self.ended: set[str] = set()
        self.hung: set[str] = set()  # servers of which no answer comes
        self.before_start: Callable[[], None] = lambda: None
        self.before_open: Callable[[str], None] = lambda server: None
        self.over = threading.Event()

    def meet(self, *servers: ServerAddress) -> None:
        self.met = list(servers)
        self.listening |= {each.uri: each.server for each in servers}

    def ensure(self, spark: Any, config: ServerConfig, suspects: Sequence[str] = ()) -> tuple[ServerAddress, ...]:
        self.before_start()
        self.suspects.append(set(suspects))
        return tuple(self.met)

    def connect(self, address: ServerAddress, access: Access) -> Any:
        return Client(self, address)


class Client:
    def __init__(self, world: World, address: ServerAddress) -> None:
        self.world = world
        self.address = address

    def ping(self, timeout_s: float) -> bool:
        assert 0 < timeout_s <= 10
        if self.address.server in self.world.hung:
            self.world.over.wait(timeout_s)
            return False
        return self.world.listening.get(self.address.uri) == self.address.server

    def hang(self) -> None:
        """A call to one that does not answer: its timeout is ten minutes away."""
        if self.address.server in self.world.hung:
            self.world.over.wait(60)

    def open(self, shards: range, *_: object, moving: bool = False) -> None:
        self.world.before_open(self.address.server)
        self.world.moved += [self.address.server] if moving else []
        self.world.opened.append((self.address.server, shards))

    def shutdown(self, keep: bool = False) -> bool:
        self.world.ended.add(self.address.server)
        return self.address.uri in self.world.listening


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(fleet_module, "ensure_servers", made.ensure)
    monkeypatch.setattr(fleet_module, "connect", made.connect)
    return made


@pytest.fixture
def fleet(world: World) -> Iterator[Fleet]:
    config = ServerConfig(
        run="a" * 16, token="t", operators=(), store_uri="/store", memory_bytes=1 << 24, function_timeout_s=60
    )
    made = Fleet(None, config, SHARDS, HEARTBEAT_S)  # type: ignore[arg-type]
    yield made
    world.over.set()
    made.close()


MANIFEST = Manifest(epoch=3, run="a" * 16, try_=0)


def names(fleet: Fleet) -> list[str]:
    return [each.server for each in fleet.servers]


def test_a_living_server_that_no_task_met_keeps_its_shards(world: World, fleet: Fleet) -> None:
    world.meet(server("a"), server("b"))
    fleet.open(MANIFEST, RetryBudget(60))
    world.meet(server("b"))
    fleet.recover(MANIFEST, 1)
    assert names(fleet) == ["a", "b"]
    assert world.suspects == [set(), set()]
    assert sorted(world.opened[-2:]) == [("a", range(4)), ("b", range(4, 8))]


def test_one_that_does_not_answer_is_suspected_and_replaced(world: World, fleet: Fleet) -> None:
    world.meet(server("a"), server("b"))
    fleet.open(MANIFEST, RetryBudget(60))
    assert fleet.all_alive()
    del world.listening["grpc://a"]
    assert not fleet.all_alive()
    world.meet(server("c"), server("b"))
    fleet.recover(MANIFEST, 1)
    assert world.suspects[-1] == {"a"}
    assert names(fleet) == ["c", "b"]
    assert fleet.all_alive()


def test_one_that_no_task_could_replace_stays_suspected(world: World, fleet: Fleet) -> None:
    world.meet(server("a"), server("b"))
    fleet.open(MANIFEST, RetryBudget(60))
    del world.listening["grpc://a"]
    world.meet(server("b"))
    fleet.recover(MANIFEST, 1)
    assert names(fleet) == ["b"]
    fleet.recover(MANIFEST, 2)
    assert world.suspects[-1] == {"a"}


def test_a_successor_at_the_same_address_does_not_answer_for_the_lost(world: World, fleet: Fleet) -> None:
    first, second = server("a", "grpc://here:1"), server("b", "grpc://here:1")
    world.meet(first)
    fleet.open(MANIFEST, RetryBudget(60))
    world.meet(second)
    assert not fleet.all_alive()
    fleet.recover(MANIFEST, 1)
    assert names(fleet) == ["b"]
    assert world.suspects[-1] == {"a"}


def test_every_server_ever_met_is_ended(world: World, fleet: Fleet) -> None:
    world.meet(*(server(f"s{number}") for number in range(SHARDS + 1)))  # one too many to be of use
    fleet.open(MANIFEST, RetryBudget(60))
    del world.listening["grpc://s0"]
    world.meet(server("new"), server("spare"))
    fleet.recover(MANIFEST, 1)
    assert "spare" not in names(fleet) and "s0" not in names(fleet)
    fleet.close()
    assert world.ended == {*(f"s{number}" for number in range(SHARDS + 1)), "new", "spare"}
    fleet.close()


@pytest.mark.parametrize("count", [1, 2])
def test_no_call_waits_for_a_server_that_is_silent(world: World, fleet: Fleet, count: int) -> None:
    """Also where it is the only one, and elsewhere, so that nobody here can end it."""
    world.meet(*(server(f"s{number}") for number in range(count)))
    fleet.open(MANIFEST, RetryBudget(60))
    cancelled = threading.Event()
    fleet.cancel_jobs = cancelled.set
    world.hung.add("s0")
    with pytest.raises(StateServerError, match=r"s0 .* has not answered"):
        fleet.each(lambda client, number: client.hang())
    assert cancelled.is_set() and fleet.cancels == 1
    assert not fleet.all_alive()
    world.meet(server("new"), *(server(f"s{number}") for number in range(1, count)))
    fleet.recover(MANIFEST, 1)
    assert "s0" not in names(fleet) and "s0" in world.suspects[-1]
    assert fleet.each(lambda client, number: number) == list(range(count))


def test_jobs_that_begin_too_late_to_be_cancelled_are_cancelled_too(
    world: World, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the server is replaced: the job that starts another one is not for it."""
    monkeypatch.setattr(fleet_module, "_CANCEL_AGAIN_S", 0.01)
    world.meet(server("a"))
    fleet.open(MANIFEST, RetryBudget(60))
    cancels, jobs = threading.Semaphore(0), threading.Event()
    fleet.has_jobs = jobs.is_set
    fleet.cancel_jobs = cancels.release
    fleet._give_up(server("a"), 1.0)
    assert cancels.acquire(timeout=30)
    assert not cancels.acquire(timeout=0.1), "there was no job"
    with pytest.raises(StateServerError, match=r"a .* has not answered"):
        fleet.raise_given_up()
    jobs.set()
    for _ in range(2):
        assert cancels.acquire(timeout=30)
    world.meet(server("b"))
    fleet.recover(MANIFEST, 1)
    fleet.raise_given_up()
    while cancels.acquire(timeout=0.3):
        pass
    assert fleet.cancels >= 3


def test_servers_that_hang_take_no_threads_from_the_others(world: World, fleet: Fleet) -> None:
    for number in range(40):
        world.meet(server(f"s{number}"))
        if number == 0:
            fleet.open(MANIFEST, RetryBudget(60))
        else:
            fleet.recover(MANIFEST, number)
        world.hung.add(f"s{number}")
        fleet._give_up(server(f"s{number}"), 1.0)
        with pytest.raises(StateServerError, match="has not answered"):
            fleet.each(lambda client, number: client.hang())
        for _ in range(2):  # as a call that was under way
            fleet._worker.submit(world.over.wait)
    world.meet(server("fine"))
    fleet.recover(MANIFEST, 99)
    assert fleet.each(lambda client, number: client.address.server) == ["fine"]


class Broken:
    """Calls of which the first ones have no answer."""

    def __init__(self, times: int, error: type[Exception] = UnansweredError) -> None:
        self.left, self.error = times, error
        self.calls = 0

    def __call__(self, client: Any, number: int) -> str:
        self.calls += 1
        if self.calls <= self.left:
            raise self.error("the way back is gone")
        return "answer"


def test_a_call_whose_answer_is_lost_is_made_again(world: World, fleet: Fleet) -> None:
    world.meet(server("a"))
    fleet.open(MANIFEST, RetryBudget(60))
    assert fleet.each(Broken(2)) == ["answer"]


@pytest.mark.parametrize("error", [StateServerError, ValueError])
def test_one_that_may_not_be_made_twice_or_that_is_refused_is_not(
    world: World, fleet: Fleet, error: type[Exception]
) -> None:
    world.meet(server("a"))
    fleet.open(MANIFEST, RetryBudget(60))
    broken = Broken(1, error)
    with pytest.raises(error):
        fleet.each(broken)
    assert broken.calls == 1


def test_a_call_is_not_made_again_for_ever_nor_to_a_dead_server(world: World, fleet: Fleet) -> None:
    world.meet(server("a"))
    fleet.open(MANIFEST, RetryBudget(60))
    endless = Broken(1000)
    with pytest.raises(UnansweredError):
        fleet.each(endless)
    assert 1 < endless.calls < 10
    del world.listening["grpc://a"]
    dead = Broken(1000)
    with pytest.raises(UnansweredError):
        fleet.each(dead)
    assert dead.calls == 1


def test_a_server_lost_while_it_is_opened_is_replaced_as_often_as_needed(world: World, fleet: Fleet) -> None:
    """Five losses in a row: there is no number of tries, only the budget's time."""
    left = [server(f"s{number}") for number in range(6)]
    world.meet(left.pop())

    def dies(name: str) -> None:
        if left:
            world.listening.clear()
            world.meet(left.pop())
            raise UnansweredError(f"{name} was lost")

    world.before_open = dies
    fleet.open(MANIFEST, RetryBudget(60))
    assert names(fleet) == ["s0"]


def test_a_server_killed_while_it_starts_is_started_again(world: World, fleet: Fleet) -> None:
    left = [UnansweredError("killed while it started")] * 3

    def dies() -> None:
        if left:
            raise left.pop()

    world.meet(server("a"))
    world.before_start = dies
    fleet.open(MANIFEST, RetryBudget(60))
    assert names(fleet) == ["a"]


def test_a_server_that_lives_and_cannot_be_reached_while_it_is_opened_is_a_loss(world: World, fleet: Fleet) -> None:
    """More often than a call is made again: the network is in trouble, and pings happen to pass."""
    left = [UnansweredError("the way back is gone")] * 12

    def breaks(name: str) -> None:
        if left:
            raise left.pop()

    world.meet(server("a"))
    world.before_open = breaks
    fleet.open(MANIFEST, RetryBudget(60))
    assert names(fleet) == ["a"]


def test_a_server_that_cannot_start_is_no_loss(world: World, fleet: Fleet) -> None:
    def refuses() -> None:
        raise StateServerError("there is no certificate")

    world.before_start = refuses
    with pytest.raises(StateServerError, match="no certificate"):
        fleet.open(MANIFEST, RetryBudget(60))


def test_a_server_that_refuses_to_open_is_no_loss(world: World, fleet: Fleet) -> None:
    def refuses(name: str) -> None:
        raise StateServerError("it could not start")

    world.meet(server("a"))
    world.before_open = refuses
    with pytest.raises(StateServerError, match="could not start"):
        fleet.open(MANIFEST, RetryBudget(60))


def spread(fleet: Fleet) -> list[tuple[str, int, int]]:
    return [(server.server, low, high) for server, low, high in fleet.routes]


def test_rows_go_to_the_new_owners_before_the_steps_do(world: World, fleet: Fleet) -> None:
    world.meet(server("a"), server("b"))
    fleet.open(MANIFEST, RetryBudget(60))
    world.meet(server("c"))
    fleet.join([server("a"), server("c"), server("silent")])
    assert [each.server for each in fleet.wanted] == ["a", "b", "c"], "one that does not answer gets no shards"
    after = fleet.placement.balanced(fleet.wanted)
    fleet.begin_move(after)
    assert spread(fleet) == [("a", 0, 2), ("c", 2, 5), ("b", 5, 8)]
    assert names(fleet) == ["a", "b"]
    world.opened.clear()
    fleet.move(MANIFEST)
    assert sorted(world.opened, key=str) == [("a", range(2)), ("b", range(5, 8)), ("c", range(2, 5))]
    assert sorted(world.moved) == ["a", "b", "c"]
    assert names(fleet) == ["a", "c", "b"] and fleet.placement.version == 1


def test_only_servers_whose_shards_change_are_called(world: World, fleet: Fleet) -> None:
    world.meet(server("a"), server("b"))
    fleet.open(MANIFEST, RetryBudget(60))
    fleet.leave(["b"])
    world.listening |= {"grpc://c": "c"}
    fleet.join([server("c")])
    fleet.begin_move(fleet.placement.balanced(fleet.wanted))
    fleet.move(MANIFEST)
    assert sorted(world.moved) == ["b", "c"]
    assert ("b", range(0)) in world.opened
    assert names(fleet) == ["a", "c"]
    wait_until("the end of one that has no shards left", lambda: world.ended == {"b"}, 10)


def test_a_new_owner_that_falls_silent_is_noticed(world: World, fleet: Fleet) -> None:
    world.meet(server("a"))
    fleet.open(MANIFEST, RetryBudget(60))
    world.meet(server("a"), server("c"))
    fleet.join([server("c")])
    world.hung.add("c")
    world.before_open = lambda name: world.over.wait(60) and None if name == "c" else None
    fleet.begin_move(fleet.placement.balanced(fleet.wanted))
    with pytest.raises(StateServerError, match=r"c .* has not answered"):
        fleet.move(MANIFEST)
    with pytest.raises(StateServerError, match=r"c .* has not answered"):
        fleet.raise_given_up()
    fleet.end_move()
    world.met = [server("a")]
    fleet.recover(MANIFEST, 1)
    assert spread(fleet) == [("a", 0, 8)]
    assert [each.server for each in fleet.wanted] == ["a"]


def test_those_that_leave_get_nothing_unless_nobody_else_is_there(world: World, fleet: Fleet) -> None:
    world.meet(server("a"), server("b"))
    fleet.open(MANIFEST, RetryBudget(60))
    fleet.leave(["a"])
    assert [each.server for each in fleet.wanted] == ["b"]
    fleet.leave(["a", "b"])
    assert [each.server for each in fleet.wanted] == ["a", "b"]


def test_so_many_servers_have_shards_as_were_asked_for(world: World) -> None:
    config = ServerConfig(
        run="a" * 16, token="t", operators=(), store_uri="/store", memory_bytes=1 << 24, function_timeout_s=60
    )
    world.meet(server("a"), server("b"), server("c"))
    fleet = Fleet(None, config, SHARDS, HEARTBEAT_S, servers_max=2)  # type: ignore[arg-type]
    fleet.open(MANIFEST, RetryBudget(60))
    assert names(fleet) == ["a", "b"]
    world.meet(server("c"), server("d"))
    fleet.join([server("c")])
    assert [each.server for each in fleet.wanted] == ["a", "b"]
    fleet.leave(["a"])
    assert [each.server for each in fleet.wanted] == ["b", "c"]
    fleet.leave([])
    del world.listening["grpc://a"]
    fleet.recover(MANIFEST, 1)
    assert sorted(names(fleet)) == ["b", "c"]
    fleet.close()
