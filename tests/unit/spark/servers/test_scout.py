"""Which executors get servers, and whose servers give up their shards."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tailrace.env import clock
from tailrace.server.transport.server_config import ServerAddress
from tailrace.spark.servers.scout import Scout


class Fleet:
    """``slots``: executors that the next tasks will meet."""

    def __init__(self) -> None:
        self.members: list[ServerAddress] = []
        self.leaving: set[str] = set()
        self.slots: list[str] = []
        self.searches = 0
        self.has_room = True

    def find_more(self) -> None:
        self.searches += 1
        known = {each.executor for each in self.members}
        self.members += [_server(each) for each in self.slots if each not in known]

    def leave(self, servers: Iterable[str]) -> None:
        self.leaving = set(servers)


def _server(executor: str) -> ServerAddress:
    return ServerAddress(f"s{executor}", f"grpc://{executor}", "here", 1, 1, "", executor=executor)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [100.0]
    monkeypatch.setattr(clock, "monotonic", lambda: time[0])
    return time


def test_executors_are_found_and_those_that_go_are_named(now: list[float]) -> None:
    fleet, executors = Fleet(), {"0": True, "1": True}
    fleet.slots = ["0", "1"]
    scout = Scout(fleet, lambda: executors)  # type: ignore[arg-type]
    scout.stop()
    scout.look()
    scout.look()
    assert fleet.searches == 1 and [each.executor for each in fleet.members] == ["0", "1"]
    executors["0"] = False  # decommissioned
    del executors["1"]  # removed
    scout.look()
    assert fleet.leaving == {"s0", "s1"} and fleet.searches == 1
    executors |= {"0": True}
    scout.look()
    assert fleet.leaving == {"s1"}


def test_tasks_that_miss_an_executor_are_sent_again_ever_more_rarely(now: list[float]) -> None:
    fleet = Fleet()
    scout = Scout(fleet, lambda: {"0": True})  # type: ignore[arg-type]
    scout.stop()
    for _ in range(100):
        scout.look()
        now[0] += 1.0
    assert 3 <= fleet.searches <= 6
    fleet.has_room = False
    now[0] += 1000.0
    searches = fleet.searches
    scout.look()
    assert fleet.searches == searches, "there are as many servers as were asked for"


def test_where_the_driver_runs_the_tasks_nothing_is_done(now: list[float]) -> None:
    fleet = Fleet()
    fleet.members = [_server("")]
    scout = Scout(fleet, dict)  # type: ignore[arg-type]
    scout.stop()
    scout.look()
    assert fleet.searches == 0 and fleet.leaving == set()
