"""The task that reads an epoch's output from the state servers, for the sink's job.

It may run before the servers have made the output: the request waits there until they have.

One DataFrame serves all epochs of a query with one of Tailrace's own sinks (``spark.sinks.epoch_output``), so its tasks
learn which epoch and try they read from a local property of the job.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

from tailrace.errors import StateServerError
from tailrace.ids import Attempt
from tailrace.operators.nested import unpacked_batch
from tailrace.server.transport.client import connect
from tailrace.server.transport.server_config import Access, ServerAddress
from tailrace.spark.tasks.worker import tune_worker


@dataclass(frozen=True)
class OutputPart:
    """One of several parts of one server's output."""

    address: ServerAddress
    number: int
    of: int


@dataclass(frozen=True)
class OutputTask:
    """The function of ``mapInArrow`` over part numbers. ``at``: None where the job's local property has it."""

    parts: tuple[OutputPart, ...]
    at: Attempt | None
    operator: str
    access: Access
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        at = self.at or attempt_of_job(self.access.run)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                part = self.parts[number]
                client = connect(part.address, self.access)
                for made in client.output(at.epoch, at.try_, self.operator, part.number, part.of):
                    yield unpacked_batch(made, self.schema)
        tune_worker()


def output_property(run: str) -> str:
    """The local property with the epoch and the try whose output a job reads."""
    return f"tailrace.output.{run}"


def output_property_value(at: Attempt) -> str:
    return f"{at.epoch} {at.try_}"


def attempt_of_job(run: str) -> Attempt:
    """In a task: what its job was started for."""
    context = TaskContext.get()
    value = None if context is None else context.getLocalProperty(output_property(run))
    if value is None:
        raise StateServerError("an epoch's output was read outside of its sink: a defect of Tailrace, please report it")
    epoch, try_ = value.split()
    return Attempt(int(epoch), int(try_))
