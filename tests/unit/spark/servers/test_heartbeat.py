"""Which servers a heartbeat reports as silent: from what was answered, and when."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tailrace.env import processes
from tailrace.env.files.disk import host_name
from tailrace.server.transport.server_config import ServerAddress
from tailrace.spark.servers.heartbeat import Heartbeat

TIMEOUT_S = 0.25


class Servers:
    """Answers come from those that are not in ``hung``."""

    def __init__(self, *servers: ServerAddress) -> None:
        self.servers = list(servers)
        self.hung: set[str] = set()
        self.reported: list[str] = []
        self.reported_one = threading.Event()
        self.answered = threading.Semaphore(0)
        self._ends = threading.Event()

    def ask(self, server: ServerAddress, timeout_s: float) -> bool:
        if server.server in self.hung:
            return not self._ends.wait(timeout_s)  # as a call does that times out
        self.answered.release()
        return True

    def silent(self, server: ServerAddress, silent_s: float) -> None:
        assert silent_s > TIMEOUT_S
        self.reported.append(server.server)
        self.reported_one.set()

    def started(self) -> Heartbeat:
        return Heartbeat(
            lambda: self.servers, lambda s, t: self.ask(s, t) and s.server not in self.hung, self.silent, 0.25
        )

    def some_answers(self, count: int = 10) -> None:
        for _ in range(count):
            assert self.answered.acquire(timeout=30)


def far(name: str) -> ServerAddress:
    return ServerAddress(name, f"grpc://{name}", "elsewhere", 1, 1, "")


def test_only_the_silent_one_is_given_up_and_only_once() -> None:
    servers = Servers(far("a"), far("b"))
    heartbeat = servers.started()
    try:
        servers.some_answers()
        assert not servers.reported
        servers.hung.add("b")
        assert servers.reported_one.wait(30)
        servers.some_answers(20)
        assert servers.reported == ["b"]
    finally:
        heartbeat.stop()


def test_one_that_came_in_its_place_is_watched_too() -> None:
    servers = Servers(far("a"))
    servers.hung.add("a")
    heartbeat = servers.started()
    try:
        assert servers.reported_one.wait(30)
        servers.servers = [far("c")]
        servers.some_answers()
        servers.reported_one.clear()
        servers.hung.add("c")
        assert servers.reported_one.wait(30)
        assert servers.reported == ["a", "c"]
    finally:
        heartbeat.stop()


@pytest.fixture
def spinning() -> Iterator[ServerAddress]:
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    found = processes.facts(child.pid)
    assert found is not None
    yield ServerAddress("busy", "grpc://busy", host_name(), child.pid, os.getpid(), "", found.started)
    child.kill()
    child.wait()


def test_one_of_this_machine_that_works_is_busy_and_gets_longer(spinning: ServerAddress) -> None:
    servers = Servers(spinning, far("hung"), far("fine"))
    servers.hung |= {"busy", "hung"}
    heartbeat = servers.started()
    try:
        assert servers.reported_one.wait(30)
        servers.some_answers()
        assert servers.reported == ["hung"], "the busy one has as many questions open, and works"
    finally:
        heartbeat.stop()
