"""State servers: the real engine, staging and checkpoint around a small operator; and the driver's way to them.

A call starts a task in the server's process. It may be lost on its way there or back, or be made twice; its caller
hears ``StateServerError`` where the server dies, is silent for too long, or the way fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from support.simulation.rows import OPERATOR, SHARDS, SOURCE, Rows, State, Sums, compact, records_of, shard_of
from support.simulation.scheduler import Process
from support.simulation.tasks import SimCall, SimClock
from tailrace.commit.manifest import Manifest
from tailrace.commit.objects import ObjectRef
from tailrace.env.stores.object_store import ObjectStore
from tailrace.errors import StateServerError
from tailrace.server.checkpoint.checkpoint import StoreCheckpoint
from tailrace.server.epoch.engine import Engine
from tailrace.server.epoch.staging import Staging
from tailrace.server.transport.epoch_messages import CommitResult, Request, Uploaded
from tailrace.server.transport.stage_messages import CommittedAttempt, StageKey

if TYPE_CHECKING:
    from support.simulation.world import World

ANSWER_S = 5.0
"""A server that does not answer for so long is taken for dead."""


class Server:
    def __init__(self, world: World, name: str, machine: int, run: str) -> None:
        self.name = name
        self.machine = machine
        self.process = Process(f"server {name}")
        self.given_up = False
        self._world = world
        self._run = run
        self._waiting: list[SimCall] = []
        self._engine: Engine | None = None
        self.process.at_death.append(self._died)

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            self._engine = Engine(
                run=self._run,
                server=self.name,
                pid=0,
                operators={OPERATOR: Sums},
                staging=Staging(self._run, "", 1 << 20, lambda _, frame: frame),
                checkpoint=StoreCheckpoint(
                    self._store(), self._run, self.name, compact, shard_snapshot=self._world.shard_snapshot
                ),
                memory_bytes=1 << 20,
                clock=SimClock(self._world.scheduler),
            )
        return self._engine

    def _store(self) -> ObjectStore:
        return self._world.server_store(self.machine)

    @property
    def operator(self) -> Sums:
        operator = self.engine._runners[OPERATOR].operator
        assert isinstance(operator, Sums)
        return operator

    def ask(self, what: str, work: Callable[[], Any]) -> Any:
        world = self._world
        scheduler, draw = world.scheduler, world.scheduler.random
        scheduler.point(f"ask {self.name} to {what}")
        odd = draw.random() if world.network < 1 else 1.0
        if self.process.dead or self.given_up or odd < world.network:
            raise StateServerError(f"{self.name} cannot be reached")
        call = SimCall(scheduler)
        self._waiting.append(call)
        scheduler.start(self.process, what, call.work, work, ())
        if odd > 1 - world.network:
            scheduler.start(self.process, f"{what} again", SimCall(scheduler).work, work, ())
        try:
            answer = call.result(ANSWER_S)
        except TimeoutError:
            self.given_up = True
            raise StateServerError(f"{self.name} has not answered for {ANSWER_S:.0f} s") from None
        if world.network < odd < 2 * world.network:
            raise StateServerError(f"the answer of {self.name} was lost")
        return answer

    def _died(self) -> None:
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call.end(None, StateServerError(f"{self.name} was lost"))


@dataclass(frozen=True)
class Done:
    """What a server has emitted."""

    records: State
    committed: CommitResult | None


@dataclass(frozen=True)
class Client:
    """As ``server.client.StateClient``, of which it has what the commit needs."""

    server: Server
    run: str

    def open(self, shards: Iterable[int], manifest: Manifest, try_: int) -> None:
        request = self._request(try_=try_, shards=tuple(shards), manifest=manifest)
        self.server.ask("open", lambda: self.server.engine.assign(request))

    def stage(self, epoch: int, try_: int, attempt: int, rows: Sequence[tuple[int, int]]) -> CommittedAttempt:
        def stage() -> CommittedAttempt:
            staging = self.server.engine.staging
            frame: Any = Rows(tuple(rows))
            made = staging.open(StageKey(self.run, OPERATOR, epoch, try_, attempt, 0))
            staging.add(made, frame)
            receipt = staging.finish(made, made.receipt)
            return CommittedAttempt(0, attempt, receipt.rows, receipt.checksum)

        committed_attempt: CommittedAttempt = self.server.ask("stage", stage)
        return committed_attempt

    def prepare(self, epoch: int, try_: int, committed_attempts: Sequence[CommittedAttempt]) -> None:
        request = self._request(epoch=epoch, try_=try_, committed_attempts=tuple(committed_attempts))
        self.server.ask("prepare", lambda: self.server.engine.prepare(request))

    def run_epoch(self, epoch: int, try_: int, way: int, horizon: int, commit: bool) -> Done:
        request = self._request(
            epoch=epoch, try_=try_, now=way, watermark=horizon, commit=commit, upload=True, inline_bytes=1 << 20
        )

        def run() -> Done:
            result = self.server.engine.run_epoch(request)
            records: State = {}
            for batch in result.batches or ():
                records |= records_of(batch)
            return Done(records, result.committed)

        done: Done = self.server.ask("run", run)
        return done

    def commit(self, epoch: int, try_: int, *, upload: bool) -> CommitResult:
        request = self._request(epoch=epoch, try_=try_, upload=upload)
        answer: CommitResult = self.server.ask("commit", lambda: self.server.engine.commit(request))
        return answer

    def upload(self, deltas: Iterable[ObjectRef]) -> Uploaded:
        request = self._request(deltas=tuple(delta.name for delta in deltas))
        answer: Uploaded = self.server.ask("upload", lambda: self.server.engine.upload(request))
        return answer

    def compact(self, manifest: Manifest) -> None:
        request = self._request(manifest=manifest)
        self.server.ask("compact", lambda: self.server.engine.compact(request))

    def forget(self, epoch: int) -> None:
        self.server.ask("forget", lambda: self.server.engine.forget(self._request(epoch=epoch)))

    def ping(self) -> bool:
        try:
            self.server.ask("answer", lambda: None)
        except StateServerError:
            return False
        return True

    def _request(self, **more: Any) -> Request:
        return Request(run=self.run, operator=OPERATOR, **more)


@dataclass
class SimFleet:
    """As ``spark.fleet.Fleet``: the servers of one run, those that are lost replaced."""

    world: World
    run: str
    wanted: int
    servers: list[Server] = field(default_factory=list)
    known: list[Server] = field(default_factory=list)

    def client(self, server: Server) -> Client:
        return Client(server, self.run)

    def open(self, manifest: Manifest, tries: int) -> None:
        self._start_servers()
        for left in reversed(range(tries)):
            try:
                self._load(manifest, 0)
                return
            except StateServerError:
                if not left or self.all_alive():
                    raise
                self.replace_lost()

    def recover(self, manifest: Manifest, try_: int) -> None:
        self.replace_lost()
        self._load(manifest, try_)

    def replace_lost(self) -> None:
        self.servers = [server for server in self.servers if self.client(server).ping()]
        self._start_servers()

    def all_alive(self) -> bool:
        return all(self.client(server).ping() for server in self.servers)

    def ranges(self) -> list[range]:
        count = len(self.servers)
        return [range(SHARDS * each // count, SHARDS * (each + 1) // count) for each in range(count)]

    def stage(self, epoch: int, try_: int, start: int, end: int) -> list[CommittedAttempt | None]:
        """The ingest job: the stretch's rows, each with its owner; None where a server has none."""
        attempt = self.world.next_attempt()
        ranges = self.ranges()

        def stage(client: Client, number: int) -> CommittedAttempt | None:
            mine = [row for row in SOURCE[start:end] if shard_of(row[0]) in ranges[number]]
            return client.stage(epoch, try_, attempt, mine) if mine else None

        return self.each(stage)

    def each(self, call: Callable[[Any, int], Any]) -> list[Any]:
        """Call every server at once; raise the first error after all have answered."""
        clients = [self.client(server) for server in self.servers]
        if len(clients) == 1:
            return [call(clients[0], 0)]
        scheduler = self.world.scheduler
        assert scheduler.current is not None
        calls = [SimCall(scheduler) for _ in clients]
        for number, (client, made) in enumerate(zip(clients, calls, strict=True)):
            name = f"{scheduler.current.name}.{number}"
            scheduler.start(scheduler.current.process, name, made.work, call, (client, number))
        errors = [error for made in calls if (error := made.exception()) is not None]
        if errors:
            raise errors[0]
        return [made.result() for made in calls]

    def close(self) -> None:
        scheduler = self.world.scheduler
        for server in self.known:
            scheduler.later(0.0, lambda server=server: scheduler.kill(server.process))

    def state(self) -> State:
        """All that the servers hold. No operation of the simulation."""
        return {
            key: sum_
            for server in self.servers
            for state in server.operator.state.values()
            for key, sum_ in state.items()
        }

    def _start_servers(self) -> None:
        while len(self.servers) < self.wanted:
            server = self.world.new_server(self.run)
            self.servers.append(server)
            self.known.append(server)

    def _load(self, manifest: Manifest, try_: int) -> None:
        ranges = self.ranges()
        self.each(lambda client, number: client.open(ranges[number], manifest, try_))
