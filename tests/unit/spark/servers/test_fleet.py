"""Which servers a fleet counts as living, which it suspects, and that it ends every one it ever heard of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tailrace.commit.manifest import Manifest
from tailrace.server.transport.server_config import Access, ServerAddress, ServerConfig
from tailrace.spark.servers import fleet as fleet_module
from tailrace.spark.servers.fleet import Fleet

SHARDS = 8


def server(name: str, uri: str | None = None) -> ServerAddress:
    return ServerAddress(name, uri or f"grpc://{name}", "here", 1, 1, "")


class World:
    """Servers as the driver meets them: who listens at which address, and whom the next tasks will meet."""

    def __init__(self) -> None:
        self.listening: dict[str, str] = {}  # uri -> id; missing: nobody answers there
        self.met: list[ServerAddress] = []
        self.suspects: list[set[str]] = []
        self.opened: list[tuple[str, range]] = []
        self.ended: set[str] = set()

    def meet(self, *servers: ServerAddress) -> None:
        self.met = list(servers)
        self.listening |= {each.uri: each.server for each in servers}

    def ensure(self, spark: Any, config: ServerConfig, suspects: Sequence[str] = ()) -> tuple[ServerAddress, ...]:
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
        return self.world.listening.get(self.address.uri) == self.address.server

    def open(self, shards: range, *_: object) -> None:
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
    made = Fleet(None, config, SHARDS)  # type: ignore[arg-type]
    yield made
    made.close()


MANIFEST = Manifest(epoch=3, run="a" * 16, try_=0)


def names(fleet: Fleet) -> list[str]:
    return [each.server for each in fleet.servers]


def test_a_living_server_that_no_task_met_keeps_its_shards(world: World, fleet: Fleet) -> None:
    world.meet(server("a"), server("b"))
    fleet.open(MANIFEST)
    world.meet(server("b"))
    fleet.recover(MANIFEST, 1)
    assert names(fleet) == ["a", "b"]
    assert world.suspects == [set(), set()]
    assert sorted(world.opened[-2:]) == [("a", range(4)), ("b", range(4, 8))]


def test_one_that_does_not_answer_is_suspected_and_replaced(world: World, fleet: Fleet) -> None:
    world.meet(server("a"), server("b"))
    fleet.open(MANIFEST)
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
    fleet.open(MANIFEST)
    del world.listening["grpc://a"]
    world.meet(server("b"))
    fleet.recover(MANIFEST, 1)
    assert names(fleet) == ["b"]
    fleet.recover(MANIFEST, 2)
    assert world.suspects[-1] == {"a"}


def test_a_successor_at_the_same_address_does_not_answer_for_the_lost(world: World, fleet: Fleet) -> None:
    first, second = server("a", "grpc://here:1"), server("b", "grpc://here:1")
    world.meet(first)
    fleet.open(MANIFEST)
    world.meet(second)
    assert not fleet.all_alive()
    fleet.recover(MANIFEST, 1)
    assert names(fleet) == ["b"]
    assert world.suspects[-1] == {"a"}


def test_every_server_ever_met_is_ended(world: World, fleet: Fleet) -> None:
    world.meet(*(server(f"s{number}") for number in range(SHARDS + 1)))  # one too many to be of use
    fleet.open(MANIFEST)
    del world.listening["grpc://s0"]
    world.meet(server("new"), server("spare"))
    fleet.recover(MANIFEST, 1)
    assert "spare" not in names(fleet) and "s0" not in names(fleet)
    fleet.close()
    assert world.ended == {*(f"s{number}" for number in range(SHARDS + 1)), "new", "spare"}
    fleet.close()
