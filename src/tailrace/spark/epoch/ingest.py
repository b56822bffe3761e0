"""The ingest task: Arrow batches in, frames to the owning servers, one receipt out.

It is the last step of the streaming plan itself, before ``foreachBatch``: behind that wall Spark would first turn every
row into one of its own and copy it. A plan is made once a run, so what changes from epoch to epoch reaches the tasks as
``Orders``, in a local property of the job. Properties are logged by Spark, so nothing secret is in them.

Runs in Spark's Python workers, once per attempt of a task. A retried, speculative or zombie attempt stages under its
own attempt id; only the receipts that Spark returns to the driver count.

Everything here is per batch. No Python runs per row or per key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa
from pyspark import TaskContext

from tailrace.commit.late_rows import LateAttempt, LateRef
from tailrace.env import clock
from tailrace.errors import StateServerError
from tailrace.operators.ingest.frame import split
from tailrace.operators.registry import ingest_of, spec_from_json
from tailrace.server.transport.client import connect
from tailrace.server.transport.server_config import Access, ServerAddress
from tailrace.server.transport.stage_messages import NOTHING_STAGED, StageKey, StageReceipt
from tailrace.spark.epoch.epoch_config import FRAME_ROWS_MAX
from tailrace.spark.epoch.worker import settle
from tailrace.spark.hints.sender import HintPoint, HintSender, sender_of
from tailrace.spark.sinks.late_rows import LatePlace, LateWriter
from tailrace.types import DataType

RECEIPT_DDL = "receipt string"
_FRAME_BYTES = 32 << 20
_FRAMES_ALIKE = 8


@dataclass(frozen=True)
class Receipt:
    """What the winning attempt of a task has done. ``staged`` is by server, in the placement's order."""

    partition: int
    attempt: int
    rows: int
    late_rows: int
    null_time_rows: int
    partials: int
    sampled_rows: int
    sampled_keys: int
    times_max: tuple[int, ...]  # by input
    combine_ms: float
    transfer_ms: float
    staged: tuple[StageReceipt, ...]
    late: tuple[LateRef, ...] = ()  # the rows left out, where somebody wants them

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Receipt:
        raw = json.loads(text)
        raw["staged"] = tuple(StageReceipt(**each) for each in raw["staged"])
        raw["times_max"] = tuple(raw["times_max"])
        raw["late"] = tuple(LateRef(**each) for each in raw["late"])
        return cls(**raw)


@dataclass(frozen=True)
class TaskInstructions:
    """What tasks need to know of one try of an epoch."""

    epoch: int
    try_: int
    late_before: int
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
    """The local property with the orders of a run's epoch."""
    return f"tailrace.orders.{run}"


@dataclass(frozen=True)
class IngestTask:
    """The function of ``mapInArrow``: small, since Spark ships it with every task."""

    operator: str  # an OperatorSpec as JSON
    types: tuple[tuple[str, str], ...]  # of the input columns in order, name and type
    access: Access
    late: LatePlace | None = None  # where rows go that are left out; None: nowhere
    recorded: bool = False  # servers record accesses, and want to know in which order rows came
    point: HintPoint | None = None  # of hints out of the rows that come, before they are gathered

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        instructions = context.getLocalProperty(instructions_property(self.access.run))
        if instructions is None:
            raise StateServerError("rows came to a Tailrace task outside of an epoch: read the query's sink instead")
        receipt = self._run(
            batches, TaskInstructions.from_json(instructions), context.taskAttemptId(), context.partitionId()
        )
        settle()
        yield pa.RecordBatch.from_pydict({"receipt": [receipt.to_json()]})

    def _run(
        self, batches: Iterator[pa.RecordBatch], instructions: TaskInstructions, attempt: int, partition: int
    ) -> Receipt:
        spec = spec_from_json(self.operator)
        layout = spec.layout()
        types = {name: DataType(type_) for name, type_ in self.types}
        ingest = ingest_of(spec, instructions.late_before, instructions.combine, types, instructions.epoch)
        ingest.keep_arrivals = self.recorded
        late: LateWriter | None = None
        if self.late is not None:
            late = LateWriter(
                self.late, LateAttempt(self.access.run, instructions.epoch, instructions.try_, partition, attempt)
            )
            ingest.counts.late_taker = late
        ranges = [(lo, hi) for _, lo, hi in instructions.servers]
        key = StageKey(self.access.run, spec.name, instructions.epoch, instructions.try_, attempt, partition)
        writers = [connect(address, self.access).stage(key) for address, _, _ in instructions.servers]
        sender = None if self.point is None else sender_of(self.point, self.access)
        passing = (batch.rename_columns([*types]) for batch in batches)
        combine_s = transfer_s = 0.0
        try:
            seen = passing if sender is None else _hinting(passing, sender)
            for chunk in chunks(seen, instructions.frame_rows, instructions.first_frame):
                started = clock.monotonic()
                frames = split(ingest.frame(chunk), layout, ranges)
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
                sender.heard()
            staged = tuple(writer.finish() for writer in writers)
            transfer_s += clock.monotonic() - started
        finally:
            for writer in writers:
                writer.abort()
        counts = ingest.counts
        written = () if late is None else late.finish()
        left_out = counts.late_rows + counts.null_time_rows
        assert late is None or sum(ref.rows for ref in written) == left_out, f"{left_out} rows were left out"
        return Receipt(
            partition=partition,
            attempt=attempt,
            rows=counts.rows,
            late_rows=counts.late_rows,
            null_time_rows=counts.null_time_rows,
            partials=counts.partials,
            sampled_rows=counts.sampled_rows,
            sampled_keys=counts.sampled_keys,
            times_max=tuple(counts.times_max),
            combine_ms=combine_s * 1e3,
            transfer_ms=transfer_s * 1e3,
            staged=staged or (NOTHING_STAGED,) * len(instructions.servers),
            late=written,
        )


def _hinting(batches: Iterable[pa.RecordBatch], sender: HintSender) -> Iterator[pa.RecordBatch]:
    """The batches; hints go out as they come."""
    for batch in batches:
        sender.rows(dict(zip(batch.schema.names, batch.columns, strict=True)), len(batch))
        yield batch
    sender.finish()


def chunks(
    batches: Iterable[pa.RecordBatch], frame_rows: int, first_frame: int = 1
) -> Iterator[Sequence[pa.RecordBatch]]:
    """Batches gathered until a frame is worth sending: Spark's own are a few thousand rows.

    However Spark cuts its batches, frames have the same rows: so floating-point numbers are added in the same order
    when an epoch is replayed. (But for rows so wide that a frame's bytes are its limit.) After every few frames they
    are twice as large: ``frame_rows`` is what fitted the epoch before, and this one may have a thousand times its rows.
    The first has ``first_frame`` times as many, the second one time less, and so on down to one: what comes last has
    the least time to be foretold.
    """

    def rows_of(number: int) -> int:
        taper, flood = first_frame - number, 1 << number // _FRAMES_ALIKE
        return max(frame_rows, min(frame_rows * max(taper, flood), FRAME_ROWS_MAX))

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
