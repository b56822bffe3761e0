"""The state servers of one run, as the driver sees them: placed, called together, replaced when lost.

A server is lost when it does not answer, whoever else does on its address. That no task met it proves nothing. Every
server that a task of the run has ever met is remembered until the end, and ended then.

No call waits for a server that the heartbeat has given up, however many servers there are: calls are made in threads
that nobody has to wait for. One whose answer was lost on its way is made again where its server still lives, so that a
moment's trouble of the network costs neither a try nor a restart.

Threads: the epoch's thread places and recovers; the commits' thread calls ``each`` meanwhile, never during a recovery;
the heartbeat's thread gives servers up. Inside, calls go to all servers at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from tailrace.commit.manifest import Manifest
from tailrace.env import clock, tasks
from tailrace.env.files.disk import is_this_machine
from tailrace.env.tasks import Call
from tailrace.errors import CertificateError, StateServerError, UnansweredError
from tailrace.server.process.launch import end_unresponsive
from tailrace.server.transport.client import StateClient, connect, disconnect
from tailrace.server.transport.server_config import Access, ServerAddress, ServerConfig
from tailrace.spark.servers.executors import ensure_servers
from tailrace.spark.servers.heartbeat import Heartbeat
from tailrace.spark.servers.losses import RetryBudget, one_line
from tailrace.spark.servers.placement import Placement

_log = logging.getLogger("tailrace")
_LOOK_S = 0.5
_AGAIN_PAUSES_S = (0.0, 0.1, 0.5)
"""Before a call is made again: so often at most."""
_PINGS = 2
"""So many in a row must fail before a server whose answer was lost is taken for dead."""
_SLACK_S = 1.0
_CANCEL_AGAIN_S = 1.0
_END_S = 15.0
_CALLS_MAX = 1024
"""At once. Calls to servers that hang take threads for as long as they do, and no other call may wait for one."""
_Answer = TypeVar("_Answer")


class Fleet:
    def __init__(
        self,
        spark: SparkSession,
        config: ServerConfig,
        shards: int,
        heartbeat_s: float = 5.0,
        servers_max: int | None = None,
    ) -> None:
        """``servers_max``: so many servers have shards at most; None: all that there are."""
        self._spark = spark
        self._config = config
        self._shards = shards
        self._placement: Placement | None = None
        self._next: Placement | None = None  # where shards are on their way
        self._known: dict[str, ServerAddress] = {}
        self._spare: dict[str, ServerAddress] = {}  # servers without shards, by id; replaced whole
        self._leaving: frozenset[str] = frozenset()  # ids of servers that are to have none
        self._servers_max = servers_max
        self._worker = tasks.worker("tailrace-fleet", _CALLS_MAX)
        self._heartbeat_s = heartbeat_s
        self._heartbeat: Heartbeat | None = None
        self._silent: dict[str, StateServerError] = {}  # servers that are given up
        self._replaced: set[str] = set()  # those of them that no new job is given any more
        self._closed = tasks.event()
        self.has_jobs: Callable[[], bool] = lambda: False  # whether the query has any that run now
        self.cancel_jobs: Callable[[], None] = lambda: None  # these
        self.cancels = 0  # how often that was called, counted before it is

    @property
    def access(self) -> Access:
        return self._config.access

    @property
    def servers(self) -> tuple[ServerAddress, ...]:
        assert self._placement is not None
        return self._placement.servers

    @property
    def placement(self) -> Placement:
        assert self._placement is not None
        return self._placement

    @property
    def routes(self) -> tuple[tuple[ServerAddress, int, int], ...]:
        """Every server with its half-open range of shards: where rows of the epoch that begins are to go."""
        placement = self._next or self.placement
        return tuple(
            (server, low, high) for server, (low, high) in zip(placement.servers, placement.ranges, strict=True)
        )

    def client(self, server: ServerAddress) -> StateClient:
        return connect(server, self.access)

    # Placing ---------------------------------------------------------------------------------------------------------

    def open(self, manifest: Manifest, budget: RetryBudget) -> None:
        """Start the servers and load the state of ``manifest``'s epoch; again, where one is lost on the way."""
        lost = False
        while True:
            try:
                if self._placement is None:
                    self._place()
                elif lost:
                    self.replace_lost()
                self._load(manifest, 0)
                return
            except StateServerError as error:
                if not lost and self._refuses(error):
                    raise  # it would do so again
                budget.lost("while state servers were opened", error)
                lost = True

    def _place(self) -> None:
        self._placement = Placement.even(self._ensure(())[: self._servers_max], self._shards)
        self._config = replace(self._config, outputs=())  # seen; they go with the first epoch
        self._heartbeat = Heartbeat(
            lambda: self._in_use,
            lambda server, wait_s: self.client(server).ping(wait_s),
            self._give_up,
            self._heartbeat_s,
        )

    def _refuses(self, error: StateServerError) -> bool:
        """Whether a server cannot start, or does not want to open, rather than being lost on the way."""
        if isinstance(error, CertificateError):
            return True
        if isinstance(error, UnansweredError):
            return False
        return self._placement is None or self.all_alive()

    def recover(self, manifest: Manifest, try_: int) -> None:
        """Replace servers that are gone; bring every one back to the end of ``manifest``'s epoch for a new try."""
        self.replace_lost()
        self._load(manifest, try_)

    def replace_lost(self) -> None:
        """Servers in place of those that do not answer. They have no state yet: ``recover`` gives it to them."""
        assert self._placement is not None
        self._replaced |= self._silent.keys()
        living = self._answering(self._known.values())
        met = self._ensure(self._known.keys() - {server.server for server in living})
        found = list(dict.fromkeys([*living, *met]))
        staying = [server for server in found if server in self.servers or server.server not in self._leaving]
        self._placement = self._placement.reassigned(self._at_most(staying))
        self._spare = {each.server: each for each in staying if each not in self.servers}

    # Moving ----------------------------------------------------------------------------------------------------------

    def find_more(self) -> None:
        """Have tasks look for executors without a server. Any thread, while epochs go on."""
        met = ensure_servers(self._spark, self._config)
        self.join(met)
        surplus = [server for server in met if server not in self.members]
        self._ask(surplus, lambda client: client.shutdown(), _END_S)

    @property
    def has_room(self) -> bool:
        """Whether more servers may have shards than there are to get some."""
        return self._servers_max is None or len(self.wanted) < self._servers_max

    def join(self, servers: Iterable[ServerAddress]) -> None:
        """Servers that tasks have met: those that have no shards may get some. Any thread."""
        met = {server.server: server for server in servers}
        self._known = {**self._known, **met}
        answering = self._answering([server for server in met.values() if server not in self.servers])
        self._spare = {**self._spare, **{server.server: server for server in answering}}

    def leave(self, servers: Iterable[str]) -> None:
        """These servers, by their ids, and no others are to have no shards any more: they will soon end. Any thread."""
        self._leaving = frozenset(servers)

    @property
    def wanted(self) -> list[ServerAddress]:
        """The servers that are to have shards."""
        servers = list(dict.fromkeys([*self.servers, *self._spare.values()]))
        staying = [server for server in servers if server.server not in self._leaving]
        return staying[: self._servers_max] or servers

    @property
    def members(self) -> list[ServerAddress]:
        """The servers that have shards, or may get some."""
        return list(dict.fromkeys([*self.servers, *self._spare.values()]))

    def begin_move(self, placement: Placement) -> None:
        """Shards are to move before the steps of the epoch that begins. Its rows go to their new owners from now on."""
        self._next = placement

    def move(self, manifest: Manifest) -> None:
        """Move them, as they are after ``manifest``'s epoch, which is durable and the newest one: in the first try of
        the next one.

        No commit is under way: its servers are those from before. Any thread, while no other changes the placement.
        Where this fails, the epoch needs another try.
        """
        before, after = self.placement, self._next
        assert after is not None
        ranges = after.moved(before)
        self._call(
            list(ranges),
            lambda client, number: client.open(range(*list(ranges.values())[number]), manifest, 0, moving=True),
        )
        self._placement, self._next = after, None
        self._spare = {name: each for name, each in self._spare.items() if each not in after.servers}
        for server in [server for server, (low, high) in ranges.items() if low == high]:
            self._known = {name: each for name, each in self._known.items() if name != server.server}
            self._worker.submit(self.client(server).shutdown)

    def end_move(self) -> None:
        """Of an epoch whose try is over: where shards have not moved, they do not."""
        self._next = None

    @property
    def _in_use(self) -> list[ServerAddress]:
        """Servers that have shards, or will have some."""
        coming = self._next.servers if self._next is not None else ()
        return list(dict.fromkeys([*self.servers, *coming]))

    def _ensure(self, suspects: Iterable[str]) -> tuple[ServerAddress, ...]:
        servers = ensure_servers(self._spark, self._config, frozenset(suspects))
        self._known = {**self._known, **{server.server: server for server in servers}}
        return servers

    def _at_most(self, servers: Sequence[ServerAddress]) -> list[ServerAddress]:
        """As many as may have shards: those first that have some."""
        return sorted(servers, key=lambda server: server not in self.servers)[: self._servers_max]

    def _load(self, manifest: Manifest, try_: int) -> None:
        ranges = [range(low, high) for _, low, high in self.routes]
        # All objects, and not only those of its shards: copies of the others are kept for servers beside it.
        self.each(lambda client, number: client.open(ranges[number], manifest, try_))

    # Calling ---------------------------------------------------------------------------------------------------------

    def each(self, call: Callable[[StateClient, int], _Answer]) -> list[_Answer]:
        """Call every server at once with (client, its number); raise the first error after all have answered.

        A server that is given up meanwhile is not waited for.
        """
        return self._call(self.servers, call)

    def _call(self, servers: Sequence[ServerAddress], call: Callable[[StateClient, int], _Answer]) -> list[_Answer]:
        calls = [self._worker.submit(self._answered, server, call, number) for number, server in enumerate(servers)]
        for made in calls:
            while not _has_ended(made, _LOOK_S):
                self._raise_given_up(servers, calls)
        errors = [error for made in calls if (error := made.exception()) is not None]
        if errors:
            raise errors[0]
        return [made.result() for made in calls]

    def raise_given_up(self) -> None:
        """Raise where a server is given up: a job that begins now would send rows to it and wait."""
        for server in self._in_use:
            if server.server in self._silent:
                raise self._silent[server.server]

    def _answered(self, server: ServerAddress, call: Callable[[StateClient, int], _Answer], number: int) -> _Answer:
        """The answer of a server, called again where it was lost and the server lives."""
        client = self.client(server)
        for pause_s in _AGAIN_PAUSES_S:
            if server.server in self._silent:
                raise self._silent[server.server]
            try:
                return call(client, number)
            except UnansweredError as error:
                if not self._lives(server, client):
                    raise
                _log.info("a state server that lives is called again: %s", one_line(error))
            clock.sleep(pause_s)
        return call(client, number)

    def _lives(self, server: ServerAddress, client: StateClient) -> bool:
        return any(server.server not in self._silent and client.ping(self._heartbeat_s) for _ in range(_PINGS))

    def _raise_given_up(self, servers: Sequence[ServerAddress], calls: Sequence[Call[Any]]) -> None:
        for server, made in zip(servers, calls, strict=True):
            if not made.done() and server.server in self._silent:
                raise self._silent[server.server]

    def _answering(self, servers: Iterable[ServerAddress]) -> list[ServerAddress]:
        """Those of the servers that answer, asked all at once."""
        asked = [server for server in servers if server.server not in self._silent]
        answers = self._ask(asked, lambda client: client.ping(self._heartbeat_s), self._heartbeat_s + _SLACK_S)
        return [server for server, answered in zip(asked, answers, strict=True) if answered]

    def _ask(
        self, servers: Sequence[ServerAddress], ask: Callable[[StateClient], bool], timeout_s: float
    ) -> list[bool]:
        """What each of them answers within so long; False where one does not. Fails for nobody."""
        until = clock.monotonic() + timeout_s
        calls = [self._worker.submit(ask, self.client(server)) for server in servers]
        return [
            _has_ended(made, max(0.0, until - clock.monotonic())) and made.exception() is None and made.result()
            for made in calls
        ]

    def all_alive(self) -> bool:
        """Whether every server answers."""
        return len(self._answering(self.servers)) == len(self.servers)

    def _give_up(self, server: ServerAddress, silent_s: float) -> None:
        """Give up a silent server: no call waits for it any more, and it must not come back."""
        error = StateServerError(
            f"state server {server.server} (pid {server.pid} on {server.host}) has not answered for {silent_s:.1f} s"
        )
        _log.info("%s: it is given up", error)
        self._silent[server.server] = error
        # Where it is of this machine, calls to it end with it. That may take a while, and others may fall silent.
        tasks.start("tailrace-end-server", end_unresponsive, server)
        if not is_this_machine(server.host):
            self._cancel_now()
            tasks.start("tailrace-cancel", self._cancel_until_replaced, server)

    def _cancel_now(self) -> None:
        self.cancels += 1  # before: whoever sees a job end by this must find that it was us
        self.cancel_jobs()

    def _cancel_until_replaced(self, server: ServerAddress) -> None:
        """Jobs that began a moment too late to be cancelled with the others wait for that server too."""
        while not self._closed.wait(_CANCEL_AGAIN_S) and server.server not in self._replaced:
            try:
                if self.has_jobs():
                    self._cancel_now()
            except Exception as error:
                _log.info("jobs that wait for a silent state server could not be cancelled: %s", one_line(error))

    # The end ---------------------------------------------------------------------------------------------------------

    def give_up(self) -> None:
        """The query is being stopped: no server waits for anything outside any more."""

        def tell(client: StateClient) -> bool:
            client.give_up()
            return True

        self._ask(list(self._known.values()), tell, _END_S)

    def close(self, keep: bool = False) -> None:
        """End every server of the run. Those that are gone already are fine.

        ``keep``: copies of objects on their machines, because the query is likely to start again.
        """

        def end(client: StateClient) -> bool:
            if not client.shutdown(keep):
                end_unresponsive(client.address)
            return True

        self._closed.set()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        known, self._known = self._known, {}
        if known:
            self._ask(list(known.values()), end, _END_S)
        disconnect(self._config.run)
        self._worker.shutdown(wait=False)


def _has_ended(call: Call[Any], timeout_s: float) -> bool:
    """Whether the call ends within so long, well or not."""
    try:
        call.exception(timeout_s)
    except TimeoutError:
        return False
    return True
