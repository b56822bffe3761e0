"""An epoch's output, as a DataFrame for the sink. It may be read any number of times.

A small output comes with the servers' answers and becomes a local table: no extra job. A large one stays in the
servers, and tasks fetch their share each time the DataFrame is read. Such a DataFrame can be made, and read, before the
servers have made the output: tasks wait there until they have.

Tailrace's own sinks read an output in one job and keep nothing of it. They read the outputs of all epochs through one
DataFrame, since making one costs Spark as much as starting the job: a local property of the thread that starts the job
says which epoch is meant. A user's function gets a DataFrame of its own, which stands for its epoch wherever it is
read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tailrace.ids import Attempt
from tailrace.operators.nested import unpacked_batch
from tailrace.server.transport.client import connect
from tailrace.server.transport.server_config import Access, ServerAddress
from tailrace.spark.private import arrow_frame
from tailrace.spark.sources.nested import arrow_of
from tailrace.spark.tasks.output_reader import OutputPart, OutputTask, output_property, output_property_value

LOCAL_ROWS_MAX = 20_000

Write = Callable[[DataFrame], None]
Hop = Callable[[DataFrame], DataFrame]
"""What Spark makes of the rows before the sink gets them, without a state."""


@dataclass(frozen=True)
class EpochOutput:
    """An epoch's rows. ``local``: they are in the driver already. ``rows``: how many; None until the servers know, and
    where Spark makes other rows of them.
    """

    rows: int | None
    local: bool
    frame: Callable[[], DataFrame]
    """Makes the DataFrame; a sink that does not need one saves Spark the work."""
    through: Callable[[Write], None] | None = None
    """Has the rows written through a DataFrame that stands for them in this thread, and until it returns."""
    batches: Callable[[], Iterator[pa.RecordBatch]] | None = None
    """The rows as the servers have made them, without Spark. None where Spark makes other rows of them."""

    def count(self) -> int:
        """How many rows, where a sink must know. May cost a job of Spark's, which reads them all."""
        return self.frame().count() if self.rows is None else self.rows

    def write(self, write: Write) -> None:
        """For a sink that reads the rows in this thread, and keeps nothing that would read them later."""
        if self.through is None:
            write(self.frame())
        else:
            self.through(write)

    def prepare(self) -> None:
        """Make the DataFrame of a remote output now, where it has one of its own: every sink will read that one."""
        if not self.local and self.through is None:
            self.frame()


class SharedFrame:
    """One DataFrame for the outputs of all epochs, made anew when the servers change. One thread."""

    def __init__(self) -> None:
        self._made: tuple[tuple[ServerAddress, ...], DataFrame] | None = None

    def get(self, servers: Sequence[ServerAddress], make: Callable[[], DataFrame]) -> DataFrame:
        if self._made is None or self._made[0] != tuple(servers):
            self._made = tuple(servers), make()
        return self._made[1]


def local_output(
    spark: SparkSession, batches: Sequence[pa.RecordBatch], arrow: pa.Schema, schema: StructType, hop: Hop | None
) -> EpochOutput:
    rows = sum(len(batch) for batch in batches)

    def frame() -> DataFrame:
        # PySpark cannot take a table without any batch.
        whole = batches or [pa.RecordBatch.from_pylist([], schema=arrow)]
        nested = arrow_of(schema)
        table = pa.Table.from_batches([unpacked_batch(batch, nested) for batch in whole])
        made = arrow_frame(spark, table, schema)
        return made if hop is None else hop(made)

    plain = hop is None or not rows
    return EpochOutput(rows if plain else None, plain, frame, batches=(lambda: iter(batches)) if plain else None)


def remote_output(
    spark: SparkSession,
    servers: Sequence[ServerAddress],
    at: Attempt,
    operator: str,
    access: Access,
    schema: StructType,
    shared: SharedFrame | None,
    hop: Hop | None,
) -> EpochOutput:
    """One that stays in the servers; they may still have to make it. ``shared``: of a query with a sink of Tailrace."""

    def frame(at: Attempt | None) -> DataFrame:
        rows = operator_rows(spark, servers, at, operator, access, schema)
        return rows if hop is None else hop(rows)

    def through(shared: SharedFrame, write: Write) -> None:
        with reading(spark.sparkContext, access.run, at):
            write(shared.get(servers, lambda: frame(None)))

    def batches() -> Iterator[pa.RecordBatch]:
        for address in servers:
            yield from connect(address, access).output(at.epoch, at.try_, operator)

    own = cache(lambda: frame(at))
    once = None if shared is None else partial(through, shared)
    return EpochOutput(None, False, own, once, batches if hop is None else None)


def operator_rows(
    spark: SparkSession,
    servers: Sequence[ServerAddress],
    at: Attempt | None,
    operator: str,
    access: Access,
    schema: StructType,
) -> DataFrame:
    """What an operator has put out, read from the servers. ``at``: None for what the job says (``reading``)."""
    each = max(1, -(-spark.sparkContext.defaultParallelism // len(servers)))
    parts = tuple(OutputPart(address, number, each) for address in servers for number in range(each))
    numbers = spark.range(0, len(parts), 1, len(parts))
    return numbers.mapInArrow(OutputTask(parts, at, operator, access, arrow_of(schema)), schema)


@contextmanager
def reading(context: SparkContext, run: str, at: Attempt) -> Iterator[None]:
    """Jobs that this thread starts meanwhile read this output."""
    context.setLocalProperty(output_property(run), output_property_value(at))
    try:
        yield
    finally:
        context.setLocalProperty(output_property(run), None)  # type: ignore[arg-type]
