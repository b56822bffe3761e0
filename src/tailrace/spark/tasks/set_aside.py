"""Rows that Spark makes for a table or a topic, on their way to the driver, which writes them in order.

A few rows come with the task's receipt. More are set aside in objects, which the driver reads one after the other, so
that it holds a piece of an epoch at a time, and a task does too. An attempt writes objects of its own, and only the
receipts that Spark returns to the driver count: so an attempt that is retried, or comes late, changes nothing.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import pyarrow as pa
from pyspark import TaskContext

from tailrace.commit.row_objects import RowsAttempt, RowsRef
from tailrace.spark.tasks.output_reader import attempt_of_job
from tailrace.spark.tasks.row_objects import RowsPlace, RowsWriter
from tailrace.spark.tasks.worker import tune_worker

FEW_BYTES = 256 << 10
"""So many of a task come with its receipt: the driver holds them of all tasks."""


@dataclass(frozen=True)
class RowsReceipt:
    """The rows of a partition, in order. ``few``: an Arrow stream in base64, where no object has them."""

    partition: int
    objects: tuple[RowsRef, ...]
    few: str
    rows: int

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> RowsReceipt:
        raw = json.loads(text)
        return cls(**{**raw, "objects": tuple(RowsRef(**each) for each in raw["objects"])})

    def few_batches(self) -> Iterator[pa.RecordBatch]:
        if self.few:
            with pa.ipc.open_stream(base64.b64decode(self.few)) as reader:
                yield from reader


@dataclass(frozen=True)
class SetAside:
    """The function of ``mapInArrow``: gives a receipt. ``run``: of the query."""

    place: RowsPlace
    run: str
    few_bytes: int = FEW_BYTES

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        at, context = attempt_of_job(self.run), TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        few: list[pa.RecordBatch] = []
        rows = size = 0
        writer: RowsWriter | None = None
        for batch in batches:
            rows += len(batch)
            if writer is None and (size := size + batch.nbytes) > self.few_bytes:
                attempt = RowsAttempt(self.run, at.epoch, at.try_, partition, context.taskAttemptId())
                writer = RowsWriter(self.place, attempt)
                for each in few:
                    writer.take(each)
                few = []
            if writer is not None:
                writer.take(batch)
            elif len(batch):
                few.append(batch)
        objects = () if writer is None else writer.finish()
        receipt = RowsReceipt(partition, objects, _stream(few), rows)
        tune_worker()
        yield pa.RecordBatch.from_pydict({"receipt": [receipt.to_json()]})


def _stream(batches: list[pa.RecordBatch]) -> str:
    if not batches:
        return ""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return base64.b64encode(out.getvalue()).decode()
