"""State servers: the real engine, staging and checkpoint around a small operator; and the driver's way to them.

A call starts a task in the server's process. It may be lost on its way there or back, or be made twice; its caller
hears ``UnansweredError`` where the server dies or the way fails (``StateServerError`` where it may not call again), and
nothing at all, for an hour, where the link is cut or the server stands still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from support.simulation.rows import OPERATOR, Rows, State, Sums, compact, records_of
from support.simulation.scheduler import Process
from support.simulation.tasks import SimCall, SimClock
from tailrace.commit.manifest import Manifest
from tailrace.commit.objects import ObjectRef
from tailrace.env.stores.object_store import ObjectStore
from tailrace.env.transit_memory import TransitMemory
from tailrace.errors import StateServerError, UnansweredError
from tailrace.server.checkpoint.checkpoint import StoreCheckpoint
from tailrace.server.epoch.engine import Engine
from tailrace.server.epoch.staging import Staging
from tailrace.server.transport.client import IDEMPOTENT
from tailrace.server.transport.epoch_messages import CommitResult, Request, Uploaded
from tailrace.server.transport.server_config import ServerAddress
from tailrace.server.transport.stage_messages import CommittedAttempt, StageKey

if TYPE_CHECKING:
    from support.simulation.world import World

CALL_S = 3600.0
"""As long as a simulation lasts: who waits for the answer of a server that is gone hangs."""


_IDEMPOTENT = frozenset({"run" if name == "run_epoch" else name for name in IDEMPOTENT} | {"move"})
_DEAD, _BROKEN = StateServerError("it is dead"), StateServerError("the connection is broken")


class Server:
    def __init__(self, world: World, name: str, machine: int, run: str) -> None:
        self.name = name
        self.machine = machine
        self.process = Process(f"server {name}")
        self.troubled = False  # it was killed, stood still or was cut off at some time
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
                staging=Staging(self._run, "", TransitMemory(1 << 20), lambda _, frame: frame),
                checkpoint=StoreCheckpoint(
                    self._store(), self._run, self.name, compact, shard_snapshot=self._world.shard_snapshot
                ),
                memory_bytes=1 << 20,
                clock=SimClock(self._world.scheduler, self._world.wall),
            )
        return self._engine

    def _store(self) -> ObjectStore:
        return self._world.server_store(self.machine)

    @property
    def operator(self) -> Sums:
        operator = self.engine._runners[OPERATOR].operator
        assert isinstance(operator, Sums)
        return operator

    @property
    def address(self) -> ServerAddress:
        return ServerAddress(self.name, f"sim://{self.name}", f"machine{self.machine}", 0, 0, "")

    def ask(self, what: str, work: Callable[[], Any], timeout_s: float = CALL_S) -> Any:
        world = self._world
        scheduler, draw = world.scheduler, world.scheduler.random
        scheduler.point(f"ask {self.name} to {what}")
        odd = draw.random() if world.network < 1 else 1.0
        fails = world.links.fails(what)
        unanswered = UnansweredError if what in _IDEMPOTENT else StateServerError
        if odd < world.network or fails is False:
            raise unanswered(f"{self.name} cannot be reached")
        until = scheduler.now + timeout_s
        if (seconds := world.links.delay_s(what)) > 0:
            scheduler.sleep(seconds)
        if world.delayed and draw.random() < world.delayed:
            scheduler.sleep(draw.random())
        call = SimCall(scheduler)
        begin, breaks = lambda: self._begin(what, call, work), lambda: call.end(None, _BROKEN)
        if world.links.send(self, begin, breaks) and odd > 1 - world.network:
            scheduler.start(self.process, f"{what} again", SimCall(scheduler).work, work, ())
        try:
            error = call.exception(timeout_s)
            world.links.wait_for_answer(self, until)
        except TimeoutError:
            raise StateServerError(f"{self.name} did not answer in time") from None
        if fails or world.network < odd < 2 * world.network:
            raise unanswered(f"the answer of {self.name} was lost")
        if error is not None:
            raise unanswered(f"{self.name}: {error}") if error in (_DEAD, _BROKEN) else error
        return call.result()

    def _begin(self, what: str, call: SimCall, work: Callable[[], Any]) -> None:
        if self.process.dead:
            call.end(None, _DEAD)
        else:
            self._waiting.append(call)
            self._world.scheduler.start(self.process, what, call.work, work, ())

    def _died(self) -> None:
        self.troubled = True
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call.end(None, _DEAD)


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

    def open(self, shards: Iterable[int], manifest: Manifest, try_: int, *, moving: bool = False) -> None:
        request = self._request(try_=try_, shards=tuple(shards), manifest=manifest, moving=moving)
        self.server.ask("move" if moving else "open", lambda: self.server.engine.assign(request))

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

    def ping(self, timeout_s: float) -> bool:
        try:
            self.server.ask("ping", lambda: None, timeout_s)
        except StateServerError:
            return False
        return True

    @property
    def address(self) -> ServerAddress:
        return self.server.address

    def shutdown(self, keep: bool = False) -> bool:
        """It ends, in time, also where it does not hear this: its executor ends it."""
        scheduler, process = self.server._world.scheduler, self.server.process
        scheduler.later(scheduler.random.choice((0.0, 0.0, 10.0)), lambda: scheduler.kill(process))
        return True

    def _request(self, **more: Any) -> Request:
        return Request(run=self.run, operator=OPERATOR, **more)
