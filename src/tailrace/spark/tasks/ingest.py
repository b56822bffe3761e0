"""The ingest task: Arrow batches in, frames to the state servers that own the rows, one receipt out.

The task is the last step of the streaming plan itself, before ``foreachBatch``: inside the batch function, Spark would
first convert every row to its own format and copy it. A streaming plan is made once a run, so what changes from epoch
to epoch reaches the tasks as ``TaskInstructions`` in a local property of the job. Spark logs properties, so they hold
no secrets.

Runs in Spark's Python workers, once per attempt of a task. A retried, speculative or zombie attempt stages under its
own attempt id; only the receipts that Spark returns to the driver count. Where a server is lost, the receipt says so,
and the epoch gets a new try.

Everything here is per batch. No Python runs per row or per key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa
from pyspark import TaskContext

from tailrace.commit.row_objects import RowsAttempt, RowsRef
from tailrace.env import clock
from tailrace.errors import StateServerError
from tailrace.ids import MIN_MICROS
from tailrace.operators.ingest.event_time import COUNTS, Clocks
from tailrace.operators.ingest.frame import split
from tailrace.operators.nested import packed_batch
from tailrace.operators.registry import ingest_of, spec_from_json
from tailrace.server.transport.client import connect
from tailrace.server.transport.server_config import Access, ServerAddress
from tailrace.server.transport.stage_messages import NOTHING_STAGED, StageKey, StageReceipt, chain_checksum
from tailrace.spark.tasks.hint_sender import HintPoint, HintSender, sender_of
from tailrace.spark.tasks.row_objects import RowsPlace, RowsWriter
from tailrace.spark.tasks.worker import tune_worker
from tailrace.types import DataType

RECEIPT_DDL = "receipt string"
_LOST = "lost"
FRAME_ROWS_MAX = 1 << 17
"""Rows of a frame, where nothing is gained by smaller ones."""
_FRAME_BYTES = 32 << 20
_FRAMES_OF_ONE_SIZE = 8


@dataclass(frozen=True)
class Receipt:
    """What a committed attempt of a task has done. ``staged`` is by server, in the placement's order."""

    operator: str  # for which rows were ingested
    partition: int
    attempt: int
    rows: int
    late_rows: int
    null_time_rows: int
    partials: int
    sampled_rows: int
    sampled_keys: int
    times_max: tuple[int, ...]  # by stream that the operator reads
    combine_ms: float
    transfer_ms: float
    staged: tuple[StageReceipt, ...]
    checksum: int = 0  # of all frames in order, whatever servers own their rows; 0 where no order depends on it
    late: tuple[RowsRef, ...] = ()  # objects with the dropped rows, where the query has a sink for them

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Receipt:
        """Raises ``StateServerError`` where it says that a server was lost."""
        raw = json.loads(text)
        if _LOST in raw:
            raise StateServerError(raw[_LOST])
        raw["staged"] = tuple(StageReceipt(**each) for each in raw["staged"])
        raw["times_max"] = tuple(raw["times_max"])
        raw["late"] = tuple(RowsRef(**each) for each in raw["late"])
        return cls(**raw)


@dataclass(frozen=True)
class TaskInstructions:
    """What ingest tasks need to know of one try of an epoch."""

    epoch: int
    try_: int
    late_before: Mapping[str, int]  # by operator that gets rows from tasks
    combine: bool
    frame_rows: int  # of a frame, but the first has ...
    first_frame: int  # ... so many times as many, the second one time less, and so on
    eager: bool  # servers are to look at each frame as it comes
    servers: tuple[tuple[ServerAddress, int, int], ...]  # address, shards from, to

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> TaskInstructions:
        raw = json.loads(text)
        raw["servers"] = tuple((ServerAddress(**address), low, high) for address, low, high in raw["servers"])
        return cls(**raw)


def instructions_property(run: str) -> str:
    """The local property with the instructions for the tasks of a run's epoch."""
    return f"tailrace.instructions.{run}"


@dataclass(frozen=True)
class IngestTask:
    """The function of ``mapInArrow``: small, since Spark ships it with every task."""

    operator: str  # an OperatorSpec as JSON
    types: tuple[tuple[str, str], ...]  # of the input columns in order, name and type
    access: Access
    late: RowsPlace | None = None  # where dropped rows go; None: nowhere
    recorded: bool = False  # servers record accesses, and need the order in which rows came
    point: HintPoint | None = None  # sends hints for the rows as they come, before they are gathered to frames
    first_partition: int = 0  # an operator's rows may come from several jobs, whose partitions all begin with 0
    ordered_by_rows: bool = False  # the order of tasks follows from what they have read
    input_: tuple[int, int] = (0, 1)  # which of how many streams the rows are of, where a task reads one of several
    clocks: tuple[tuple[str, ...], ...] = ()  # by stream, the columns by which time goes on; none: its event time

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        instructions = context.getLocalProperty(instructions_property(self.access.run))
        if instructions is None:
            raise StateServerError("rows came to a Tailrace task outside of an epoch: read the query's sink instead")
        try:
            receipt = self._run(
                batches,
                TaskInstructions.from_json(instructions),
                context.taskAttemptId(),
                self.first_partition + context.partitionId(),
            ).to_json()
        except StateServerError as error:
            # Said, and not raised: Spark would try the task again, to no use, and log each time where it has failed.
            receipt = json.dumps({_LOST: str(error)})
        tune_worker()
        yield pa.RecordBatch.from_pydict({"receipt": [receipt]})

    def _run(
        self, batches: Iterator[pa.RecordBatch], instructions: TaskInstructions, attempt: int, partition: int
    ) -> Receipt:
        spec = spec_from_json(self.operator)
        layout = spec.layout()
        types = {name: DataType(type_) for name, type_ in self.types}
        ingest = ingest_of(spec, instructions.late_before[spec.name], instructions.combine, types, instructions.epoch)
        ingest.keep_arrivals = self.recorded
        late: RowsWriter | None = None
        if self.late is not None:
            late = RowsWriter(
                self.late, RowsAttempt(self.access.run, instructions.epoch, instructions.try_, partition, attempt)
            )
            ingest.counts.late_taker = late
        ranges = [(lo, hi) for _, lo, hi in instructions.servers]
        key = StageKey(self.access.run, spec.name, instructions.epoch, instructions.try_, attempt, partition)
        writers = [connect(address, self.access).stage(key) for address, _, _ in instructions.servers]
        sender = None if self.point is None else sender_of(self.point, self.access)
        clocks = Clocks([name for names in self.clocks for name in names])
        passing = (clocks.seen(packed_batch(batch.rename_columns([*types]), [*types.values()])) for batch in batches)
        combine_s = transfer_s = 0.0
        checksum = 0
        try:
            seen = passing if sender is None else _hinting(passing, sender)
            for chunk in chunks(seen, instructions.frame_rows, instructions.first_frame):
                started = clock.monotonic()
                whole = ingest.frame(chunk)
                if self.ordered_by_rows and whole.n:
                    checksum = chain_checksum(checksum, whole.checksum())
                frames = split(whole, layout, ranges)
                ingested = clock.monotonic()
                for writer, frame in zip(writers, frames, strict=True):
                    if frame.n:
                        writer.write(frame)
                        if instructions.eager:
                            writer.part()
                transfer_s += clock.monotonic() - ingested
                combine_s += ingested - started
            started = clock.monotonic()
            if sender is not None:
                sender.wait_received()
            staged = tuple(writer.finish() for writer in writers)
            transfer_s += clock.monotonic() - started
        finally:
            for writer in writers:
                writer.abort()
        counts = ingest.counts
        written = () if late is None else late.finish()
        dropped = counts.late_rows + counts.null_time_rows
        assert late is None or sum(ref.rows for ref in written) == dropped, f"{dropped} rows were dropped"
        return Receipt(
            operator=spec.name,
            partition=partition,
            attempt=attempt,
            **{name: getattr(counts, name) for name in COUNTS},
            times_max=self._times_max(counts.times_max, clocks),
            combine_ms=combine_s * 1e3,
            transfer_ms=transfer_s * 1e3,
            staged=staged or (NOTHING_STAGED,) * len(instructions.servers),
            checksum=checksum,
            late=written,
        )

    def _times_max(self, seen: Sequence[int], clocks: Clocks) -> tuple[int, ...]:
        """By stream that the operator reads, or by its clocks."""
        if any(self.clocks):
            pairs = zip(seen, self.clocks, strict=True)
            return tuple(time for own, names in pairs for time in ([clocks.times_max[n] for n in names] or (own,)))
        number, count = self.input_
        if count == 1:
            return tuple(seen)
        (own,) = seen
        return tuple(own if each == number else MIN_MICROS for each in range(count))


def _hinting(batches: Iterable[pa.RecordBatch], sender: HintSender) -> Iterator[pa.RecordBatch]:
    """The batches; their hints are sent as they come."""
    for batch in batches:
        sender.rows(dict(zip(batch.schema.names, batch.columns, strict=True)), len(batch))
        yield batch
    sender.finish()


def chunks(
    batches: Iterable[pa.RecordBatch], frame_rows: int, first_frame: int = 1
) -> Iterator[Sequence[pa.RecordBatch]]:
    """Batches gathered until a frame is worth sending: Spark's own are a few thousand rows.

    However Spark cuts its batches, frames have the same rows: so floating-point numbers are added in the same order
    when an epoch is replayed. (Except for rows so wide that a frame's bytes are its limit.) Every few frames their size
    doubles: ``frame_rows`` was right for the epoch before, and this one may have a thousand times its rows. The first
    frame has ``first_frame`` times ``frame_rows`` rows, the second one time less, and so on down to one: the last rows
    have the least time for a prefetch.
    """

    def rows_of(number: int) -> int:
        taper, growth = first_frame - number, 1 << number // _FRAMES_OF_ONE_SIZE
        return max(frame_rows, min(frame_rows * max(taper, growth), FRAME_ROWS_MAX))

    rows_max = rows_of(0)
    chunk: list[pa.RecordBatch] = []
    rows = size = made = 0
    for batch in batches:
        while len(batch):
            part = batch.slice(0, rows_max - rows)
            batch = batch.slice(len(part))
            chunk.append(part)
            rows += len(part)
            size += part.nbytes
            if rows >= rows_max or size >= _FRAME_BYTES:
                yield chunk
                chunk, rows, size = [], 0, 0
                made += 1
                rows_max = rows_of(made)
    if chunk:
        yield chunk
