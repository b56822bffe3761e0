"""What a state server does, without the wire: fences, steps of an epoch, commits, moves of shards.

Invariants
- ``_newest`` only grows: it is the newest (epoch, try) that any request has named. A request below it is fenced.
- Every operator holds epochs up to ``epoch``, the newest applied one. A new try of it first undoes it, in every
  operator; an epoch that is not the next one is refused, since rows would be missing.
- An epoch's delta is **sealed**, frozen in memory, before the next epoch changes anything: by its commit, or by the
  next epoch's first step where the commit has not come yet. So it may be written while the next epoch goes on.
- A delta is saved at most once per (epoch, try); a repeated call returns what the first one returned.
- Once an undo has failed the state is unknown: ``_broken`` refuses everything until ``assign`` loads it anew.

Threading
The driver's actions take ``_lock``, one at a time; staging tasks never wait for it (see ``staging``, ``hints``), nor
does ``status``. ``commit`` takes ``_commit_lock`` first, holds it throughout, and takes ``_lock`` only to read the
delta, so that a slow disk stops no other epoch's steps. ``upload`` takes neither: it knows only names. Order of locks:
``_commit_lock``, ``_lock``, staging's own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from tailrace.commit.manifest import Manifest
from tailrace.env import tasks
from tailrace.env.clock import SYSTEM, Clock
from tailrace.errors import FencedError, StateServerError
from tailrace.ids import NO_EPOCH, Attempt
from tailrace.operators.base import Operator, Patient, RestoredInPieces
from tailrace.server.checkpoint.deltas import Sealed, Sealing
from tailrace.server.checkpoint.saving import Checkpoint, DeltaSaver
from tailrace.server.epoch.background_throttle import BackgroundThrottle
from tailrace.server.epoch.operator_runner import OperatorRunner, StateLost, Step
from tailrace.server.epoch.outputs import Outputs
from tailrace.server.epoch.staging import Staging
from tailrace.server.hints.dispatcher import HintDispatcher
from tailrace.server.hints.queue import HintQueue
from tailrace.server.transport.epoch_messages import (
    Applied,
    CommitResult,
    EpochResult,
    OutputInfo,
    OutputTicket,
    Request,
    Uploaded,
)
from tailrace.server.transport.server_status import ServerStatus
from tailrace.server.transport.stage_messages import Exchanged

_STATUS_WAIT_S = 0.1


class Exchange(Protocol):
    """Stages an output for the next operator."""

    def send(self, batches: Sequence[pa.RecordBatch], request: Request) -> Exchanged: ...


class Engine:
    def __init__(
        self,
        *,
        run: str,
        server: str,
        pid: int,
        operators: Mapping[str, Callable[[], Operator]],
        staging: Staging,
        checkpoint: Checkpoint,
        exchange: Exchange | None = None,
        memory_bytes: int,
        clock: Clock = SYSTEM,
        warm_up_ms: float = 0.0,
        throttle: BackgroundThrottle | None = None,
        hint_queue: HintQueue | None = None,
        upkeep: Callable[[], None] = lambda: None,
    ) -> None:
        """``hint_queue``: has the engine's lock; operators that hold that for long let hints in by ``catch_up``.

        ``upkeep``: called after each step; gives back memory where the process has become too large.
        """
        self.staging = staging
        self.throttle = throttle or BackgroundThrottle()
        self._run, self._server = run, server
        self._clock = clock
        self._upkeep = upkeep
        self._checkpoint = checkpoint
        self._saver = DeltaSaver(checkpoint, clock)
        self._exchange = exchange
        hint_queue = hint_queue or HintQueue(tasks.reentrant_lock())
        self._lock = hint_queue.engine
        self._commit_lock = tasks.lock()
        self._outputs = Outputs()
        self._runners = {
            name: OperatorRunner(name, make, staging, self._outputs, clock) for name, make in operators.items()
        }
        self._newest = Attempt(NO_EPOCH, 0)
        self._epoch: int = NO_EPOCH
        self._forgotten: int = NO_EPOCH
        self._broken: str | None = None
        self._sealing = Sealing(checkpoint.due, staging.transit, staging.folder)
        self.hints = HintDispatcher(
            hint_queue, self._operator_of, self._accepts_hints, self.throttle.mark_busy, staging.together
        )
        self._last_status = ServerStatus(
            server=server,
            run=run,
            pid=pid,
            epoch=NO_EPOCH,
            shards=0,
            rows=0,
            state_bytes=0,
            state_disk_bytes=0,
            staged_bytes=0,
            spilled_bytes=0,
            output_bytes=0,
            memory_bytes_max=memory_bytes,
            staging_bytes_max=staging.transit.bytes_max,
            apply_ms=0.0,
            advance_ms=0.0,
            commit_ms=0.0,
            warm_up_ms=warm_up_ms,
        )

    # -- one epoch ----------------------------------------------------------------------------------------------------

    def prepare(self, request: Request) -> None:
        with self._step(request) as at:
            self._runner(request.operator).prepare(at, request.committed_attempts or ())

    def apply(self, request: Request) -> Applied:
        with self._step(request) as at:
            applied = self._runner(request.operator).apply(at, request.now, request.forget_before)
            self._epoch = at.epoch
            return applied

    def advance(self, request: Request) -> OutputInfo:
        with self._step(request) as at:
            return self._runner(request.operator).advance(at, request.late_before, request.watermark)

    def commit(self, request: Request) -> CommitResult:
        """Save the delta; where asked, upload it too. The next epoch may be under way: what is saved was sealed before.

        A try whose delta is saved can still be uploaded by whoever comes after this server on this machine.
        """
        committed = self._saved(request)
        return self._saver.uploaded(committed) if request.upload else committed

    def _saved(self, request: Request) -> CommitResult:
        with self._commit_lock:
            with self._lock:
                self._check_run(request.run)
                at = Attempt(request.epoch, request.try_)
                if at in self._sealing.saved:
                    return self._sealing.saved[at]
                began, sealing = self._clock.monotonic(), self._clock.now()
                sealed = self._sealing.sealed(at) or self._seal(self._enter(request))
            committed = self._saver.save(at, sealed, began, sealing)
            with self._lock:
                self._sealing.keep(at, committed)
            del sealed
            self._upkeep()
            return committed

    def upload(self, request: Request) -> Uploaded:
        """Bring deltas that were saved on this machine into the store, by this server or by one before it."""
        self._check_run(request.run)
        return self._saver.upload(request.deltas)

    def run_epoch(self, request: Request) -> EpochResult:
        """Every step of an epoch in one call: what small epochs pay is round trips."""
        self.throttle.mark_busy()
        try:
            with self._lock:
                if request.committed_attempts is not None:
                    self.prepare(request)
                applied = self.apply(request)
                output = self.advance(request)
                batches = self._runner(request.operator).output
                status = self.status(request)  # while nobody else can make it wait
        finally:
            self.throttle.over()
        committed = self.commit(request) if request.commit else None
        status = replace(status, commit_ms=committed.commit_ms if committed else 0.0)
        inline = list(batches) if output.bytes <= request.inline_bytes else None
        return EpochResult(applied, output, committed, status, inline)

    def exchange(self, request: Request) -> Exchanged:
        """Stage what ``request.operator`` has emitted in this epoch for ``request.target``, on every owner."""
        with self._lock:
            at = self._enter(request)
            runner = self._runner(request.operator)
            if runner.step_of(at) != Step.ADVANCED:
                raise StateServerError(f"epoch {at.epoch} try {at.try_} of {runner.name!r} has not emitted yet")
            batches = runner.output
        assert self._exchange is not None, "a chain without an exchange"
        return self._exchange.send(batches, request)

    def output(self, ticket: OutputTicket) -> Sequence[pa.RecordBatch]:
        """A part of an output, once it is there. Not fenced by forgetting: a sink may read a durable epoch's."""
        self._check_run(ticket.run)
        at = Attempt(ticket.epoch, ticket.try_)
        return self._outputs.read(self._runner(ticket.operator).name, at, ticket.part, ticket.parts)

    def give_up(self, request: Request) -> None:
        """The query is being stopped: no step waits for anything outside any more. Does not wait for one itself."""
        self._check_run(request.run)
        for runner in self._runners.values():
            if isinstance(runner.operator, Patient):
                runner.operator.give_up()

    # -- between epochs -----------------------------------------------------------------------------------------------

    def forget(self, request: Request) -> None:
        with self._lock:
            self._check_run(request.run)
            self._check_unbroken()
            if request.epoch > self._epoch:
                raise StateServerError(f"epoch {request.epoch} cannot be forgotten: only {self._epoch} is applied")
            for runner in self._runners.values():
                runner.forget(request.epoch)
            self._forgotten = max(self._forgotten, request.epoch)
            self._sealing.let_go(lambda at: at.epoch <= request.epoch)
            self.staging.fence(self._newest, self._forgotten)
        self._upkeep()

    def assign(self, request: Request) -> None:
        """Own exactly ``request.shards``, as they were after the manifest's epoch; drop everything staged.

        Shards that this server has already are kept and undone where that is possible, else they are loaded too.
        ``moving``: between two epochs. Rows of the next one may be staged by now, and are kept.
        """
        with self._commit_lock, self._lock:
            self._check_run(request.run)
            manifest = request.durable
            at = Attempt(manifest.epoch + 1, request.try_)
            if at < self._newest:
                raise FencedError(self._over(at))
            if request.moving and self._epoch > manifest.epoch:
                raise StateServerError(f"shards do not move after epoch {manifest.epoch}: {self._epoch} is applied")
            if not request.moving:
                self.staging.clear()
            self._checkpoint.keep(manifest)
            self._go_back_to(manifest.epoch)
            # Broken until every shard is in place: a load that fails half-way must not be taken for the state.
            self._broken = "loading its shards has failed"
            wanted = frozenset(request.shards)
            for runner in self._runners.values():
                runner.drop_output()
                for shard in runner.operator.shards - wanted:
                    runner.operator.drop_shard(shard)
                self._load(runner, wanted - runner.operator.shards, manifest)
            self._epoch = manifest.epoch
            self._sealing.let_go(lambda _: True)
            self._raise_newest(at)
            self._broken = None

    def compact(self, request: Request) -> None:
        """Take note of what is durable now.

        Where it is due, compaction begins in the background, and a later commit brings it.
        """
        with self._commit_lock:
            with self._lock:
                self._check_run(request.run)
                manifest = request.durable
                shards, snapshot = self._shards(), self._sealing.take_snapshot_of(manifest.epoch)
            self._checkpoint.compact(manifest, shards, snapshot)

    def status(self, request: Request) -> ServerStatus:
        """Does not wait for a step under way: who asks wants to know whether this server still answers."""
        self._check_run(request.run)
        if not self._lock.acquire(timeout=_STATUS_WAIT_S):
            return replace(self._last_status, busy=True, **self._staged())
        try:
            runners = [runner.status() for runner in self._runners.values()]
            emitted = [runner.emitted for runner in self._runners.values() if runner.emitted]
            self._last_status = replace(
                self._last_status,
                epoch=self._epoch,
                shards=len(self._shards()),
                rows=sum(runner.rows for runner in runners),
                state_bytes=sum(runner.state_bytes for runner in runners),
                state_disk_bytes=sum(runner.state_disk_bytes for runner in runners),
                output_bytes=sum(each.bytes for each in emitted),
                apply_ms=sum(runner.apply_ms for runner in runners),
                advance_ms=sum(runner.advance_ms for runner in runners),
                commit_ms=self._sealing.saved[max(self._sealing.saved)].commit_ms if self._sealing.saved else 0.0,
                operators=tuple(runners),
                **self._staged(),
            )
            return self._last_status
        finally:
            self._lock.release()

    def _staged(self) -> dict[str, Any]:
        return {"staged_bytes": self.staging.staged_bytes, "spilled_bytes": self.staging.spilled_bytes}

    def close(self) -> None:
        self._outputs.close()
        self.hints.close()
        self.staging.clear()
        for runner in self._runners.values():
            runner.operator.close()
        self._checkpoint.close()

    # -- under the lock -----------------------------------------------------------------------------------------------

    def _operator_of(self, name: str) -> Operator | None:
        runner = self._runners.get(name)
        return None if runner is None else runner.operator

    def _accepts_hints(self, operator: str, epoch: int) -> bool:
        """Whether the epoch's rows are still to be applied, and not being applied just now."""
        runner = self._runners[operator]
        applied = runner.at.epoch == epoch and runner.step != Step.PREPARED
        return self._broken is None and epoch > self._forgotten and not applied

    def _shards(self) -> list[int]:
        return sorted({shard for runner in self._runners.values() for shard in runner.operator.shards})

    @contextlib.contextmanager
    def _step(self, request: Request) -> Iterator[Attempt]:
        """Around one step of an epoch."""
        with self._lock:
            at = self._enter(request)
            try:
                with self._noticing_loss():
                    yield at
                self._upkeep()
            except Exception as error:
                self._outputs.fail(at, str(error))
                raise

    @contextlib.contextmanager
    def _noticing_loss(self) -> Iterator[None]:
        try:
            yield
        except StateLost as error:
            self._broken = str(error)
            raise

    def _runner(self, operator: str) -> OperatorRunner:
        if not operator and len(self._runners) == 1:
            return next(iter(self._runners.values()))
        if operator not in self._runners:
            raise StateServerError(f"no operator {operator!r} here, only {sorted(self._runners)}")
        return self._runners[operator]

    def _enter(self, request: Request) -> Attempt:
        """Fence a step of an epoch; where it opens a new epoch or try, make room for that."""
        self._check_run(request.run)
        self._check_unbroken()
        at = Attempt(request.epoch, request.try_)
        if at.epoch <= self._forgotten or at < self._newest:
            raise FencedError(self._over(at))
        if at > self._newest:
            if at.epoch == self._epoch + 1 and self._is_open(self._newest):
                self._seal(self._newest)
            if at.epoch > self._epoch + 1:
                raise StateServerError(
                    f"epoch {at.epoch} cannot follow {self._epoch}: epochs between are missing; assign anew"
                )
            self._undo_to(at.epoch)
            self._raise_newest(at)
        return at

    def _raise_newest(self, at: Attempt) -> None:
        self._newest = max(self._newest, at)
        self._outputs.begin(self._newest)
        self.staging.fence(self._newest, self._forgotten)

    def _undo_to(self, epoch: int) -> None:
        with self._noticing_loss():
            for runner in self._runners.values():
                runner.undo(epoch)
        self._epoch = min(self._epoch, epoch - 1)
        self._sealing.let_go(lambda at: at.epoch >= epoch)

    def _is_open(self, at: Attempt) -> bool:
        """Whether this is an epoch that has emitted, and whose delta nobody has taken yet."""
        taken = self._sealing.has(at) or at.epoch <= self._forgotten
        return (
            not taken
            and at.epoch == self._epoch
            and all(runner.step_of(at) == Step.ADVANCED for runner in self._runners.values())
        )

    def _seal(self, at: Attempt) -> Sealed:
        behind = [runner.name for runner in self._runners.values() if runner.step_of(at) != Step.ADVANCED]
        if behind:
            raise StateServerError(f"epoch {at.epoch} try {at.try_} cannot be committed: {behind} not advanced")
        operators = {name: runner.operator for name, runner in self._runners.items()}
        return self._sealing.seal(at, self._shards(), operators)

    def _go_back_to(self, epoch: int) -> None:
        """Bring the shards held to just after ``epoch``, or hold none where that is not possible."""
        if self._broken is None and self._epoch >= epoch >= self._forgotten:
            with contextlib.suppress(StateLost):
                self._undo_to(epoch + 1)
                return
        for runner in self._runners.values():
            runner.start_over()

    def _load(self, runner: OperatorRunner, missing: frozenset[int], manifest: Manifest) -> None:
        operator = runner.operator
        pieces = isinstance(operator, RestoredInPieces) and operator.restored_in_pieces
        for shard, batches, horizon in self._checkpoint.read(manifest, runner.name, sorted(missing), pieces=pieces):
            if shard in operator.shards:
                assert isinstance(operator, RestoredInPieces)
                operator.restore_more(shard, batches, horizon)
            else:
                operator.restore(shard, batches, horizon)
            del batches
            self._upkeep()

    def _check_run(self, run: str) -> None:
        if run != self._run:
            raise FencedError(f"this server belongs to run {self._run}, not to {run}")

    def _check_unbroken(self) -> None:
        if self._broken is not None:
            raise StateServerError(f"server {self._server} has lost its state ({self._broken}); assign its shards anew")

    def _over(self, at: Attempt) -> str:
        return (
            f"epoch {at.epoch} try {at.try_} is over: now at epoch {self._newest.epoch} try {self._newest.try_},"
            f" forgotten up to {self._forgotten}"
        )
