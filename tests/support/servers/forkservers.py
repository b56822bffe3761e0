"""Servers that come from a forkserver: of one test's own, or of a module's tests together."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import BinaryIO

import psutil

from support.servers.state_servers import StandIn, config, eventually, start
from tailrace.env.files import scratch
from tailrace.env.forking import Handover, context
from tailrace.server.process.fork import LINGER_S
from tailrace.server.process.fork_client import LENGTH, ForkFolder, request_of
from tailrace.server.transport.server_config import ProcessConfig, ServerAddress, ServerConfig

CONTEXT = "TAILRACE_TEST_CONTEXT"
"""A variable that nobody reads: another value makes another context, and so another forkserver."""


def fork_folder() -> ForkFolder:
    """Of the forkserver that a server started now comes from."""
    return ForkFolder(os.path.join(scratch.private_base(0), f"forkserver-{context()}"))


def works_in(process: psutil.Process, folder: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.cwd() == folder
    except psutil.Error:
        return False


def forkservers(place: ForkFolder) -> list[int]:
    """Without those that compile kernels for them."""
    found = {process.pid: process.ppid() for process in psutil.process_iter() if works_in(process, place.path)}
    return [pid for pid, parent in found.items() if parent not in found]


def wait_for_the_end(place: ForkFolder) -> None:
    """A forkserver ends without being told, some time after its last executor."""
    assert eventually(lambda: not forkservers(place), LINGER_S + 20), "it outlived its executors"
    assert eventually(lambda: not os.path.exists(place.path))


class Forks:
    """Starts servers for a stand-in of an executor. ``store``: their state location. ``temporary``: their folders'."""

    def __init__(self, place: ForkFolder, executor: StandIn, store: Path, temporary: Path) -> None:
        self.place = place
        self.executor = executor
        self.store = store
        self.temporary = temporary

    def config(self) -> ServerConfig:
        return config(self.store)

    def start(self, common: ServerConfig | None = None) -> ServerAddress:
        return start(common or self.config(), self.executor, self.temporary)

    def forkservers(self) -> list[int]:
        return forkservers(self.place)

    def ask(self, folder: str, handover: Handover, log: BinaryIO) -> socket.socket:
        """Have the forkserver fork, and leave what it has forked alone."""
        owner = (self.executor.facts.pid, self.executor.facts.started)
        request = request_of(ProcessConfig("s", folder, "localhost", *owner, self.config()), handover)
        mine, its = socket.socketpair()
        with its, socket.socket(socket.AF_UNIX) as line:
            line.connect(self.place.socket)
            socket.send_fds(line, [LENGTH.pack(len(request))], [log.fileno(), its.fileno()])
            line.sendall(request)
        return mine


def parent(address: ServerAddress) -> int:
    return psutil.Process(address.pid).ppid()
