"""A query without Spark: real engines, operators, checkpoints and the commit log, on a disk that crashes.

``Fleet`` is the servers of one run, in this process: lost and replaced in the middle of an epoch, in other numbers and
with other memory each time. ``live`` is a driver's life, from its recovery point until its script is done or
the disk stops.
Compactions run at once, not in the background, so that a seed decides everything.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, pairwise

import pyarrow as pa

from support.crash.recovery_kinds import SHARDS, TYPES, Script
from support.models.spark_logs import FakeSparkLogs
from support.stores.faulty import SimulatedCrash
from tailrace.commit import shard_ranges as ranges
from tailrace.commit.compaction.compaction import CompactSections, choose, compact_objects, write_shard_snapshot
from tailrace.commit.compaction.shard_snapshot import ShardSnapshot
from tailrace.commit.controller import Controller
from tailrace.commit.manifest import Compaction, Manifest, compaction_problem
from tailrace.commit.objects import ObjectRef
from tailrace.env.stores.object_store import ObjectStore
from tailrace.env.transit_memory import TransitMemory
from tailrace.ids import Attempt
from tailrace.operators.base import Operator, Timed
from tailrace.operators.ingest.frame import Frame, split
from tailrace.operators.registry import compact_sections, ingest_of, operator_of
from tailrace.operators.spec import OperatorSpec
from tailrace.server.checkpoint.checkpoint import StoreCheckpoint
from tailrace.server.epoch.engine import Engine
from tailrace.server.epoch.staging import Staging
from tailrace.server.transport.epoch_messages import CommitResult, Request
from tailrace.server.transport.stage_messages import CommittedAttempt, StageKey
from tailrace.testing.compare import rows_of

MEMORIES = (0, 6_000, 10**8)
EPOCH_TRIES = 3
MOVES = 0.3
"""How often shards move between two epochs."""
Emitted = Counter[str]


class ServerLost(Exception):
    pass


class Rewind(Exception):
    """An epoch that Spark has committed was lost: the driver starts again."""


@dataclass
class Logs(FakeSparkLogs):
    """Spark's own, and the sink: written outside of our store, never lost."""

    sink: dict[int, Emitted] = field(default_factory=dict)
    rng: random.Random | None = None  # who decides whether a rewind crashes

    def move_to_backup(self, path: str) -> None:
        self._perhaps_crash()
        super().move_to_backup(path)
        self._perhaps_crash()

    def _perhaps_crash(self) -> None:
        if self.rng is not None and self.rng.random() < 0.2:
            raise SimulatedCrash


def frames_of(spec: OperatorSpec, script: Script, epoch: int) -> list[Frame]:
    """Of each task. Combined or not, by the epoch: a replay does it as recorded."""
    return [
        ingest_of(spec, script.marks[epoch], epoch % 2 == 0, TYPES).frame([batch]) for batch in script.batches[epoch]
    ]


def shown(batches: Iterable[pa.RecordBatch]) -> Emitted:
    return Counter(repr(tuple(row.values())) for batch in batches for row in rows_of(pa.Table.from_batches([batch])))


def undisturbed(spec: OperatorSpec, script: Script, folder: str) -> list[Emitted]:
    """What one operator with all shards and much memory emits, that nothing happens to."""
    operator = operator_of(spec, range(SHARDS), memory_bytes=10**9, folder=folder)
    emitted = []
    for epoch in range(len(script.batches)):
        set_times(operator, script, epoch)
        operator.apply(epoch, frames_of(spec, script, epoch))
        emitted.append(shown(operator.advance(epoch, script.marks[epoch], script.marks[epoch + 1])))
        operator.delta(epoch)
        operator.forget(epoch)
    operator.close()
    return emitted


def set_times(operator: Operator, script: Script, epoch: int) -> None:
    if isinstance(operator, Timed):
        operator.set_times(*_times(script, epoch))


def _times(script: Script, epoch: int) -> tuple[int, int]:
    """When an epoch began, about at its rows' event times, and up to which update keys are forgotten."""
    return (1_000 + 2 * epoch) * 1_000_000, max(script.marks[epoch + 1] - 5_000_000, -(2**63))


class _Checkpoint(StoreCheckpoint):
    """Compacts any adjacent objects, also those that the log must refuse, and takes snapshots of any shards."""

    def __init__(self, store: ObjectStore, run: str, server: str, compact: CompactSections, rng: random.Random) -> None:
        super().__init__(store, run, server, compact)
        self._compact_sections, self._rng = compact, rng
        self._made: Compaction | None = None

    def due(self, shards: Sequence[int], changed_bytes: int, state_bytes: int) -> tuple[int, ...] | None:
        if self._rng.random() < 0.5:
            return None
        return tuple(sorted(self._rng.sample(list(shards), self._rng.randint(0, len(shards)))))

    def compact(self, manifest: Manifest, shards: Iterable[int], snapshot: ShardSnapshot | None = None) -> None:
        refs, shards = manifest.objects, tuple(shards)
        if self._made is not None and compaction_problem(manifest.living, self._made, manifest.horizons) is None:
            return
        self._made = None
        if snapshot is not None and self._rng.random() < 0.7:
            snapshotted = ranges.of_shards(snapshot.shards)
            replaced = [ref for ref in manifest.living if ranges.common(ref.shards, snapshotted)]
            if replaced:
                ours = self._run, self._server
                self._made = write_shard_snapshot(self._store, snapshot, replaced, manifest.epoch, *ours)
                return
        chosen = choose(refs, shards) if self._rng.random() < 0.3 else self._any(refs)
        if len(chosen) < 2 or self._rng.random() < 0.4:
            return
        mine = {ref.name for ref in refs if ranges.common(ref.shards, ranges.of_shards(shards))}
        self._made = compact_objects(
            self._store,
            chosen,
            shards,
            self._compact_sections,
            run=self._run,
            server=self._server,
            horizons=manifest.horizons,
            complete=mine <= {ref.name for ref in chosen},
        )

    def _any(self, refs: Sequence[ObjectRef]) -> Sequence[ObjectRef]:
        if len(refs) < 2:
            return ()
        start = self._rng.randrange(len(refs) - 1)
        return refs[start : start + self._rng.randint(2, 8)]

    def compactions(self) -> list[Compaction]:
        return [] if self._made is None else [self._made]


class Fleet:
    def __init__(self, spec: OperatorSpec, store: ObjectStore, run: str, folder: str, rng: random.Random) -> None:
        self.spec, self._store, self._run, self._folder, self._rng = spec, store, run, folder, rng
        self.losses = 0.02
        """How likely a server is lost before any step."""
        self.checkpoint: Callable[[str, CompactSections], StoreCheckpoint] = lambda server, compact: _Checkpoint(
            store, run, server, compact, rng
        )
        """Makes a checkpoint from a server's name and the function that compacts sections."""
        self._numbers = count()
        self._attempts = count()
        self._engines: list[Engine | None] = []  # None: lost
        self._ranges: list[tuple[int, int]] = []
        self.spilled = False

    def place(self, manifest: Manifest, try_: int) -> None:
        """As many servers as it pleases, each with a range of shards; those that live go back to the manifest's end."""
        wanted = self._rng.choice([1, 2, 3])
        living = [engine for engine in self._engines if engine is not None]
        for engine in living[wanted:]:
            engine.close()
        engines = living[:wanted] + [self._made() for _ in range(wanted - len(living))]
        self._engines = [*engines]
        self._ranges = self._drawn_ranges(wanted)
        for engine, (low, high) in zip(engines, self._ranges, strict=True):
            engine.assign(Request(self._run, try_=try_, shards=tuple(range(low, high)), manifest=manifest))

    def epoch(
        self,
        script: Script,
        epoch: int,
        try_: int,
        *,
        commit: bool = True,
        durable: Callable[[], Manifest] | None = None,
    ) -> tuple[Emitted, list[CommitResult]]:
        """All steps; ``commit`` with the last of them. ``durable``: makes the epoch before durable, where the servers
        may change with the begin of this one."""
        frames = frames_of(self.spec, script, epoch)
        now, forget_before = _times(script, epoch)
        if durable is not None and self._rng.random() < MOVES:
            committed_attempts = self._staged_and_moved(frames, epoch, durable)
        else:
            committed_attempts = self._all_staged(frames, epoch, try_)
        steps = Request(
            self._run,
            epoch,
            try_,
            late_before=script.marks[epoch],
            watermark=script.marks[epoch + 1],
            now=now,
            forget_before=forget_before,
            commit=commit,
            inline_bytes=1 << 40,
        )
        for number, won in enumerate(committed_attempts):
            self._engine(number).prepare(Request(self._run, epoch, try_, committed_attempts=won))
        emitted, committed = Counter[str](), []
        for number in range(len(self._engines)):
            result = self._engine(number).run_epoch(steps)
            assert result.batches is not None
            emitted += shown(result.batches)
            committed += [result.committed] if result.committed is not None else []
            self.spilled |= result.status.state_disk_bytes > 0
        return emitted, committed

    def commit(self, epoch: int, try_: int) -> list[CommitResult]:
        numbers = range(len(self._engines))
        return [self._engine(number).commit(Request(self._run, epoch, try_)) for number in numbers]

    def _all_staged(self, frames: list[Frame], epoch: int, try_: int) -> list[tuple[CommittedAttempt, ...]]:
        return [self._staged(frames, epoch, try_, number) for number in range(len(self._engines))]

    def _staged_and_moved(
        self, frames: list[Frame], epoch: int, durable: Callable[[], Manifest]
    ) -> list[tuple[CommittedAttempt, ...]]:
        """Rows are staged with other servers, or with others' shards, before the shards are there."""
        before, wanted = self._engines, self._rng.choice([1, 2, 3])
        kept = self._rng.sample(before, min(wanted, len(before)))
        after = kept + [self._made() for _ in range(wanted - len(kept))]
        try:
            self._engines, own = after, self._ranges
            self._ranges = self._drawn_ranges(wanted)
            committed_attempts = self._all_staged(frames, epoch, 0)
            self._engines, after, ranges = before, self._engines, self._ranges
            self._ranges = own
            manifest = durable()  # which may lose some of them
            after = [None if engine in kept and engine not in before else engine for engine in after]
            self._engines, self._ranges = after, ranges
            for number, (low, high) in enumerate(ranges):
                request = Request(self._run, shards=tuple(range(low, high)), manifest=manifest, moving=True)
                self._engine(number).assign(request)
        except (ServerLost, Rewind):
            for engine in after:
                if engine is not None and engine not in before:
                    engine.close()
            self._engines = [None if engine in kept and engine not in after else engine for engine in before]
            raise
        for engine in before:
            if engine is not None and engine not in after:
                engine.close()
        return committed_attempts

    def _drawn_ranges(self, count: int) -> list[tuple[int, int]]:
        cuts = [0, *sorted(self._rng.sample(range(1, SHARDS), count - 1)), SHARDS]
        return list(pairwise(cuts))

    def _staged(self, frames: list[Frame], epoch: int, try_: int, number: int) -> tuple[CommittedAttempt, ...]:
        engine, committed_attempts = self._engine(number), []
        for partition, frame in enumerate(frames):
            mine = split(frame, self.spec.layout(), self._ranges)[number]
            attempt = next(self._attempts)
            stage = engine.staging.open(StageKey(self._run, self.spec.name, epoch, try_, attempt, partition))
            engine.staging.add(stage, mine.to_batch())
            receipt = engine.staging.finish(stage, stage.receipt)
            committed_attempts.append(CommittedAttempt(partition, attempt, receipt.rows, receipt.checksum))
        return tuple(committed_attempts)

    def behind(self, manifest: Manifest) -> None:
        """Compacts and drops undo logs after an epoch that is durable: nothing here can fail the epoch."""
        for number in range(len(self._engines)):
            try:
                engine = self._engine(number)
                engine.compact(Request(self._run, manifest=manifest))
                engine.forget(Request(self._run, manifest.epoch))
            except ServerLost:
                pass

    def close(self) -> None:
        for engine in self._engines:
            if engine is not None:
                engine.close()
        self._engines = []

    def _engine(self, number: int) -> Engine:
        engine = self._engines[number]
        if engine is not None and self._rng.random() < self.losses:
            engine.close()
            self._engines[number] = engine = None
        if engine is None:
            raise ServerLost
        return engine

    def _made(self) -> Engine:
        spec, folder, memory = self.spec, self._folder, self._rng.choice(MEMORIES)
        words, server = spec.layout().words, str(next(self._numbers))

        def compact(_: str, batches: list[pa.RecordBatch], horizon: int, complete: bool) -> pa.RecordBatch:
            return compact_sections(spec, batches, horizon, complete=complete)

        return Engine(
            run=self._run,
            server=server,
            pid=0,
            operators={spec.name: lambda: operator_of(spec, (), memory_bytes=memory, folder=folder)},
            staging=Staging(self._run, folder, TransitMemory(1 << 20), lambda _, batch: Frame.from_batch(batch, words)),
            checkpoint=self.checkpoint(server, compact),
            memory_bytes=memory,
        )


def live(
    spec: OperatorSpec, script: Script, store: ObjectStore, logs: Logs, folder: str, rng: random.Random
) -> Manifest:
    """From the recovery point to the script's end, unless the disk crashes before; returns the state.

    A replayed epoch gives its rows again.
    """
    controller = Controller.start(store, {"query": spec.name}, logs, retain=rng.choice([2, 3]))
    fleet = Fleet(spec, store, controller.run, folder, rng)
    try:
        before = controller.recovery_point.manifest
        assert before.epoch == max(logs.commits, default=-1)
        fleet.place(before, 0)
        for epoch in range(before.epoch + 1, len(script.batches)):
            if epoch not in logs.offsets:
                logs.offsets.append(epoch)
            for try_ in count():
                try:
                    moves = None if try_ else partial(_same, before)
                    emitted, committed = fleet.epoch(script, epoch, try_, durable=moves)
                    break
                except ServerLost:
                    fleet.place(before, try_ + 1)
            before = durable(controller, epoch, try_, committed)
            assert logs.sink.setdefault(epoch, emitted) == emitted, f"epoch {epoch} came again with other rows"
            logs.commits.append(epoch)
            fleet.behind(before)
            controller.clean()
    finally:
        fleet.close()
        controller.close()
    return before


def _same(manifest: Manifest) -> Manifest:
    return manifest


def durable(controller: Controller, epoch: int, try_: int, committed: Sequence[CommitResult]) -> Manifest:
    horizons: dict[str, int] = {}
    for each in committed:
        for name, horizon in each.horizons.items():
            horizons[name] = max(horizon, horizons.get(name, horizon))
    return controller.commit(
        epoch,
        try_,
        [each.delta for each in committed if each.delta is not None],
        [compact for each in committed for compact in each.compactions],
        horizons=horizons,
    )


@dataclass
class _Behind:
    """Commits that are made behind their epochs: each at any moment up to the gate of the next epoch's sink."""

    controller: Controller
    fleet: Fleet
    before: Manifest
    rng: random.Random
    pending: list[Attempt] = field(default_factory=list)

    def begin(self, epoch: int, try_: int) -> None:
        self.controller.begin(epoch, try_)
        self.pending.append(Attempt(epoch, try_))

    def base_after(self, epoch: int) -> Manifest:
        self.until(epoch)
        return self.before

    def perhaps(self) -> None:
        if self.rng.random() < 0.4:
            self.until(self.pending[-1].epoch if self.pending else -1)

    def until(self, epoch: int) -> None:
        """All up to this epoch is durable; a server that is lost before takes an epoch with it."""
        while self.pending and self.pending[0].epoch <= epoch:
            at = self.pending[0]
            try:
                written = self.fleet.commit(at.epoch, at.try_)
            except ServerLost as error:
                raise Rewind from error
            self.before = durable(self.controller, at.epoch, at.try_, written)
            self.pending.pop(0)
            self.fleet.behind(self.before)
            self.controller.clean()


def live_behind(
    spec: OperatorSpec, script: Script, store: ObjectStore, logs: Logs, folder: str, rng: random.Random
) -> Manifest:
    """As ``live``, with commits behind the sinks. Raises ``Rewind`` where the driver has to start again."""
    controller = Controller.start(store, {"query": spec.name}, logs, retain=rng.choice([2, 3]))
    fleet = Fleet(spec, store, controller.run, folder, rng)
    try:
        behind = _Behind(controller, fleet, controller.recovery_point.manifest, rng)
        assert behind.before.epoch == max(logs.commits, default=-1)
        fleet.place(behind.before, 0)
        for epoch in range(behind.before.epoch + 1, len(script.batches)):
            if epoch not in logs.offsets:
                logs.offsets.append(epoch)
            for try_ in count():
                try:
                    behind.perhaps()
                    moves = None if try_ else partial(behind.base_after, epoch - 1)
                    emitted, _ = fleet.epoch(script, epoch, try_, commit=False, durable=moves)
                    break
                except ServerLost:
                    behind.until(epoch - 1)
                    fleet.place(behind.before, try_ + 1)
            behind.begin(epoch, try_)
            behind.until(epoch - 1)  # the gate
            behind.perhaps()
            assert logs.sink.setdefault(epoch, emitted) == emitted, f"epoch {epoch} came again with other rows"
            logs.commits.append(epoch)
        behind.until(len(script.batches))
        return behind.before
    finally:
        fleet.close()
        controller.close()
