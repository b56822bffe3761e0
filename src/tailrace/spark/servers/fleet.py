"""The state servers of one run, as the driver sees them: placed, called together, replaced when lost.

A server is lost when it does not answer, whoever else does on its address. That no task met it proves nothing. Every
server that a task of the run has ever met is remembered until the end, and ended then.

Threads: the epoch's thread places and recovers; the commits' thread calls ``each`` meanwhile, never during a recovery.
Inside, calls go to all servers at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from pyspark.sql import SparkSession

from tailrace.commit.manifest import Manifest
from tailrace.env.files.disk import is_this_machine
from tailrace.errors import StateServerError
from tailrace.server.process.launch import end_unresponsive
from tailrace.server.transport.client import StateClient, connect, disconnect
from tailrace.server.transport.server_config import Access, ServerAddress, ServerConfig
from tailrace.spark.servers.heartbeat import Heartbeat
from tailrace.spark.servers.placement import Placement, ensure_servers

_log = logging.getLogger("tailrace")
_LOOK_S = 0.5
_Answer = TypeVar("_Answer")


class Fleet:
    def __init__(self, spark: SparkSession, config: ServerConfig, shards: int, heartbeat_s: float = 5.0) -> None:
        self._spark = spark
        self._config = config
        self._shards = shards
        self._placement: Placement | None = None
        self._known: dict[str, ServerAddress] = {}
        self._pool = ThreadPoolExecutor(16, "tailrace-fleet")
        self._heartbeat_s = heartbeat_s
        self._heartbeat: Heartbeat | None = None
        self._silent: dict[str, StateServerError] = {}  # servers that are given up
        self.on_silent: Callable[[], None] = lambda: None

    @property
    def access(self) -> Access:
        return self._config.access

    @property
    def servers(self) -> tuple[ServerAddress, ...]:
        assert self._placement is not None
        return self._placement.servers

    @property
    def routes(self) -> tuple[tuple[ServerAddress, int, int], ...]:
        """Every server with its half-open range of shards."""
        assert self._placement is not None
        return tuple(
            (server, low, high) for server, (low, high) in zip(self.servers, self._placement.ranges, strict=True)
        )

    def client(self, server: ServerAddress) -> StateClient:
        return connect(server, self.access)

    def open(self, manifest: Manifest, tries: int = 1) -> None:
        """Start the servers and load the state of ``manifest``'s epoch; again, where one is lost on the way."""
        self._placement = Placement.even(self._ensure(()), self._shards)
        self._heartbeat = Heartbeat(
            lambda: self.servers,
            lambda server, wait_s: self.client(server).ping(wait_s),
            self._give_up,
            self._heartbeat_s,
        )
        for left in reversed(range(tries)):
            try:
                self._load(manifest, 0)
                return
            except StateServerError as error:
                if not left or self.all_alive():
                    raise
                _log.warning("a state server was lost while it was opened, trying again: %s", error)
                self.replace_lost()

    def recover(self, manifest: Manifest, try_: int) -> None:
        """Replace servers that are gone; bring every one back to the end of ``manifest``'s epoch for a new try."""
        self.replace_lost()
        self._load(manifest, try_)

    def replace_lost(self) -> None:
        """Servers in place of those that do not answer. They have no state yet: ``recover`` gives it to them."""
        assert self._placement is not None
        living = self._answering(self._known.values())
        met = self._ensure(self._known.keys() - {server.server for server in living})
        self._placement = self._placement.reassigned(list(dict.fromkeys([*living, *met])))

    def _ensure(self, suspects: Iterable[str]) -> tuple[ServerAddress, ...]:
        servers = ensure_servers(self._spark, self._config, frozenset(suspects))
        self._known |= {server.server: server for server in servers}
        return servers

    def _answering(self, servers: Iterable[ServerAddress]) -> list[ServerAddress]:
        """Those of the servers that answer, asked all at once."""

        asked = [server for server in servers if server.server not in self._silent]
        answers = self._pool.map(lambda server: self.client(server).ping(self._heartbeat_s), asked)
        return [server for server, answered in zip(asked, answers) if answered]

    def _give_up(self, server: ServerAddress, silent_s: float) -> None:
        """Give up a silent server: no call waits for it any more, and it must not come back."""
        error = StateServerError(
            f"state server {server.server} (pid {server.pid} on {server.host}) has not answered for {silent_s:.1f} s"
        )
        _log.warning("%s: it is given up", error)
        self._silent[server.server] = error
        end_unresponsive(server)  # where it is of this machine, calls to it end with it
        if not is_this_machine(server.host):
            self.on_silent()

    @property
    def given_up(self) -> int:
        """How many servers were given up so far. Who gives one up may end a job of Spark's that waited for it."""
        return len(self._silent)

    def _load(self, manifest: Manifest, try_: int) -> None:
        def load(route: tuple[ServerAddress, int, int]) -> None:
            server, low, high = route
            # All objects, and not only those of its shards: copies of the others are kept for servers beside it.
            self.client(server).open(range(low, high), manifest, try_)

        list(self._pool.map(load, self.routes))

    def each(self, call: Callable[[StateClient, int], _Answer]) -> list[_Answer]:
        """Call every server at once with (client, its number); raise the first error after all have answered.

        A server that is given up meanwhile is not waited for.
        """
        servers: Sequence[ServerAddress] = self.servers
        if len(servers) == 1:
            return [call(self.client(servers[0]), 0)]
        futures = [self._pool.submit(call, self.client(server), number) for number, server in enumerate(servers)]
        while wait(futures, timeout=_LOOK_S).not_done:
            for server, future in zip(servers, futures, strict=True):
                if not future.done() and server.server in self._silent:
                    raise self._silent[server.server]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        return [future.result() for future in futures]

    def all_alive(self) -> bool:
        """Whether every server answers."""
        return len(self._answering(self.servers)) == len(self.servers)

    def give_up(self) -> None:
        """The query is being stopped: no server waits for anything outside any more."""
        list(self._pool.map(lambda server: self.client(server).give_up(), list(self._known.values())))

    def close(self, keep: bool = False) -> None:
        """End every server of the run. Those that are gone already are fine.

        ``keep``: copies of objects on their machines, because the query is likely to start again.
        """

        def end(server: ServerAddress) -> None:
            if not self.client(server).shutdown(keep):
                end_unresponsive(server)

        if self._heartbeat is not None:
            self._heartbeat.stop()
        known, self._known = self._known, {}
        list(self._pool.map(end, known.values()))
        disconnect(self._config.run)
        self._pool.shutdown(wait=False)
