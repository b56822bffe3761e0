"""An operator, frames and a checkpoint that are small enough to be read, for tests of what a server does with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.commit.compaction.shard_snapshot import ShardSnapshot
from tailrace.commit.manifest import Compaction, Manifest
from tailrace.commit.objects import ObjectRef
from tailrace.env.transit_memory import TransitMemory
from tailrace.errors import SumOverflowError
from tailrace.ids import Attempt
from tailrace.server.checkpoint.deltas import Sealed
from tailrace.server.epoch.engine import Engine
from tailrace.server.epoch.staging import Staging
from tailrace.server.transport.epoch_messages import Request
from tailrace.server.transport.stage_messages import NOTHING_STAGED, CommittedAttempt, StageKey, StageReceipt

RUN = "00112233445566aa"
OPERATOR = "counts"
SCHEMA = pa.schema([("numbers", pa.large_binary())])


@dataclass(frozen=True)
class FakeFrame:
    """Numbers; the checksum is over their bytes."""

    numbers: tuple[int, ...]

    @property
    def n(self) -> int:
        return len(self.numbers)

    @property
    def nbytes(self) -> int:
        return 8 * len(self.numbers)

    def checksum(self) -> int:
        return hash(self.numbers)

    def to_batch(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [pa.array([np.array(self.numbers, np.int64).tobytes()], SCHEMA[0].type)], schema=SCHEMA
        )


def frame_of(operator: str, batch: pa.RecordBatch) -> FakeFrame:
    return FakeFrame(tuple(np.frombuffer(batch.column(0)[0].as_py(), np.int64).tolist()))


class FakeOperator:
    """Appends numbers to one list, in the order applied. Emits what the epoch appended."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.before: dict[int, list[int]] = {}
        self.applied: list[int] = []
        self.restored: dict[int, int] = {}
        self.shards_: set[int] = set()
        self.fail_apply = self.fail_advance = self.fail_undo = False
        self.in_memory = True
        self.failure: type[Exception] = SumOverflowError

    @property
    def shards(self) -> frozenset[int]:
        return frozenset(self.shards_)

    @property
    def horizon(self) -> int:
        return len(self.numbers)

    @property
    def rows(self) -> int:
        return len(self.numbers)

    @property
    def disk_bytes(self) -> int:
        return 0

    @property
    def nbytes(self) -> int:
        return 8 * len(self.numbers)

    def updated(self, epoch: int) -> int:
        return len(self.numbers) - len(self.before[epoch])

    def apply(self, epoch: int, frames: Sequence[FakeFrame]) -> None:
        self.before[epoch] = list(self.numbers)
        self.applied.append(epoch)
        for frame in frames:
            self.numbers.extend(frame.numbers)
        if self.fail_apply:
            raise self.failure("apply failed half-way")

    def advance(self, epoch: int, late_before: int, watermark: int) -> list[pa.RecordBatch]:
        if self.fail_advance:
            raise self.failure("advance failed half-way")
        new = self.numbers[len(self.before[epoch]) :]
        return [pa.RecordBatch.from_pydict({"n": [number]}) for number in new]

    def delta(self, epoch: int) -> Mapping[int, pa.RecordBatch]:
        new = self.numbers[len(self.before[epoch]) :]
        return {0: pa.RecordBatch.from_pydict({"n": new})} if new else {}

    def whole(self, shards: Sequence[int]) -> Mapping[int, pa.RecordBatch]:
        return {0: pa.RecordBatch.from_pydict({"n": list(self.numbers)})} if 0 in shards else {}

    def undo(self, epoch: int) -> None:
        if self.fail_undo:
            raise RuntimeError("undo failed")
        self.numbers = self.before.pop(epoch)

    def forget(self, epoch: int) -> None:
        self.before = {kept: value for kept, value in self.before.items() if kept > epoch}

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        self.shards_.add(shard)
        self.restored[shard] = self.restored.get(shard, 0) + 1
        for batch in batches:
            self.numbers.extend(batch.column(0).to_pylist())

    def drop_shard(self, shard: int) -> None:
        self.shards_.remove(shard)

    def close(self) -> None:
        pass


class FakeCheckpoint:
    """``far``: what is saved is stored only when it was uploaded."""

    def __init__(self) -> None:
        self.far = False
        self.uploaded: list[str] = []
        self.kept: list[str] = []
        self.written: list[Attempt] = []
        self.stored: dict[str, pa.RecordBatch] = {}
        self.ready: list[Compaction] = []
        self.wanted: tuple[int, ...] | None = None  # shards to be given whole
        self.asked: list[tuple[int, int]] = []  # bytes changed and held, at each call
        self.snapshotted: list[tuple[int, ShardSnapshot | None]] = []  # by epoch, what came whole

    def due(self, shards: Sequence[int], changed_bytes: int, state_bytes: int) -> tuple[int, ...] | None:
        self.asked.append((changed_bytes, state_bytes))
        return self.wanted

    def save(self, at: Attempt, sealed: Sealed) -> ObjectRef:
        self.written.append(at)
        name = f"{at.epoch}-{at.try_}"
        self.stored[name] = sealed.sections[OPERATOR][0]
        return ObjectRef(name, at.epoch, at.epoch, ((0, 4),), 1, (("op", None),))

    def upload(self, names: Sequence[str]) -> list[str]:
        found = [name for name in names if name in self.stored]
        self.uploaded += found
        return found

    def keep(self, manifest: Manifest) -> None:
        self.kept = [ref.name for ref in manifest.objects]

    def read(
        self, manifest: Manifest, operator: str, shards: Iterable[int], *, pieces: bool
    ) -> Iterator[tuple[int, list[pa.RecordBatch], int]]:
        for shard in shards:
            yield shard, [self.stored[ref.name] for ref in manifest.objects] if shard == 0 else [], 0

    def compact(self, manifest: Manifest, shards: Iterable[int], snapshot: ShardSnapshot | None = None) -> None:
        self.snapshotted.append((manifest.epoch, snapshot))

    def compactions(self) -> list[Compaction]:
        return self.ready

    def compacting(self) -> tuple[float, float] | None:
        return None

    def close(self) -> None:
        pass


@dataclass
class Bench:
    """An engine over fakes, opened with shards 0 to 3 unless said otherwise."""

    engine: Engine
    staging: Staging
    checkpoint: FakeCheckpoint
    operators: list[FakeOperator]

    @property
    def operator(self) -> FakeOperator:
        return self.operators[-1]

    def stage(
        self, epoch: int, try_: int, attempt: int, partition: int, *frames: tuple[int, ...], operator: str = OPERATOR
    ) -> CommittedAttempt:
        """Stage frames to the end; returns what the driver would name."""
        return stage(self.staging, epoch, try_, attempt, partition, *frames, operator=operator)

    def run(self, epoch: int, try_: int, *committed_attempts: CommittedAttempt, commit: bool = False) -> list[int]:
        """A whole epoch; returns what it emits."""
        done = self.engine.run_epoch(
            request(epoch, try_, committed_attempts=tuple(committed_attempts), commit=commit, inline_bytes=1 << 20)
        )
        return [number for batch in done.batches or () for number in batch.column(0).to_pylist()]


def bench(folder: str, memory_bytes: int = 1 << 20, opened: bool = True) -> Bench:
    staging = Staging(RUN, folder, TransitMemory(memory_bytes // 4), frame_of)
    checkpoint = FakeCheckpoint()
    operators: list[FakeOperator] = []

    def make() -> FakeOperator:
        operators.append(FakeOperator())
        return operators[-1]

    maker: Callable[[], FakeOperator] = make
    engine = Engine(
        run=RUN,
        server="s0",
        pid=1,
        operators={OPERATOR: maker},
        staging=staging,
        checkpoint=checkpoint,
        memory_bytes=memory_bytes,
    )
    if opened:
        engine.assign(assignment(-1, 0, (0, 1, 2, 3)))
    return Bench(engine, staging, checkpoint, operators)


def request(epoch: int, try_: int, **more: object) -> Request:
    return Request(**{"run": RUN, "epoch": epoch, "try_": try_, **more})  # type: ignore[arg-type]


def durable(epoch: int, *objects: ObjectRef) -> Manifest:
    return Manifest(epoch, RUN, 0, objects)


def assignment(epoch: int, try_: int, shards: tuple[int, ...], *objects: ObjectRef) -> Request:
    """Of shards as they were after a durable epoch."""
    return Request(RUN, try_=try_, shards=shards, manifest=durable(epoch, *objects))


def key(epoch: int, try_: int, attempt: int, partition: int, operator: str = OPERATOR, run: str = RUN) -> StageKey:
    return StageKey(run, operator, epoch, try_, attempt, partition)


def receipt_of(*frames: tuple[int, ...]) -> StageReceipt:
    receipt = NOTHING_STAGED
    for numbers in frames:
        frame = FakeFrame(numbers)
        receipt = receipt.after(frame.n, frame.nbytes, frame.checksum())
    return receipt


def stage(
    staging: Staging,
    epoch: int,
    try_: int,
    attempt: int,
    partition: int,
    *frames: tuple[int, ...],
    operator: str = OPERATOR,
) -> CommittedAttempt:
    opened = staging.open(key(epoch, try_, attempt, partition, operator))
    for numbers in frames:
        staging.add(opened, FakeFrame(numbers).to_batch())
    receipt = staging.finish(opened, receipt_of(*frames))
    return CommittedAttempt(partition, attempt, receipt.rows, receipt.checksum)
