"""What an epoch emits, as a DataFrame for the sink. It may be read any number of times.

Small emissions come with the server's answer and become a local table: no extra job. Large ones stay in the servers,
and tasks fetch their share each time the DataFrame is read. Such a DataFrame can be made, and read, before the servers
have emitted: tasks wait there until they have.

Who reads an emission in one job and keeps nothing of it, as sinks of ours do, reads it through one DataFrame for all
epochs: which epoch is meant, says a property of the thread that begins the job. Making one costs Spark as much as
beginning the job. A user's function gets one of its own, that stands for its epoch wherever it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial

import pyarrow as pa
from pyspark import SparkContext, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tailrace.errors import StateServerError
from tailrace.ids import Attempt
from tailrace.server.transport.client import connect
from tailrace.server.transport.server_config import Access, ServerAddress
from tailrace.spark.epoch.worker import settle

LOCAL_ROWS_MAX = 20_000


@dataclass(frozen=True)
class Part:
    """One of several parts of one server's emission."""

    address: ServerAddress
    number: int
    of: int


@dataclass(frozen=True)
class EmitTask:
    """The function of ``mapInArrow`` over part numbers. ``at``: None where the job's property says it."""

    parts: tuple[Part, ...]
    at: Attempt | None
    operator: str
    access: Access

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        at = self.at or _told(self.access.run)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                part = self.parts[number]
                client = connect(part.address, self.access)
                yield from client.output(at.epoch, at.try_, self.operator, part.number, part.of)
        settle()


def _property(run: str) -> str:
    """The local property with the epoch and try whose emission a job reads."""
    return f"tailrace.emission.{run}"


def _told(run: str) -> Attempt:
    context = TaskContext.get()
    told = None if context is None else context.getLocalProperty(_property(run))
    if told is None:
        raise StateServerError("an emission was read outside of its sink: a defect of Tailrace, please report it")
    epoch, try_ = told.split()
    return Attempt(int(epoch), int(try_))


Write = Callable[[DataFrame], None]


@dataclass(frozen=True)
class EpochOutput:
    """An epoch's rows. ``local``: they are in the driver already. ``rows``: how many, None while nobody knows."""

    rows: int | None
    local: bool
    frame: Callable[[], DataFrame]
    """Makes the DataFrame; a sink that does not need one saves Spark the work."""
    through: Callable[[Write], None] | None = None
    """Has the rows written through a DataFrame that stands for them in this thread, and until it returns."""

    def write(self, write: Write) -> None:
        """For who reads the rows in this thread, and keeps nothing that would read them later."""
        if self.through is None:
            write(self.frame())
        else:
            self.through(write)

    def prepare(self) -> None:
        """Make the DataFrame of rows that are not local already now, where it is theirs: every sink reads those."""
        if not self.local and self.through is None:
            self.frame()


class SharedFrame:
    """One DataFrame for the emissions of all epochs, made anew where the servers are others. One thread."""

    def __init__(self) -> None:
        self._made: tuple[tuple[ServerAddress, ...], DataFrame] | None = None

    def get(self, servers: Sequence[ServerAddress], make: Callable[[], DataFrame]) -> DataFrame:
        if self._made is None or self._made[0] != tuple(servers):
            self._made = tuple(servers), make()
        return self._made[1]


def local_output(
    spark: SparkSession, batches: Sequence[pa.RecordBatch], arrow: pa.Schema, schema: StructType
) -> EpochOutput:
    def frame() -> DataFrame:
        # PySpark cannot take a table without any batch.
        table = pa.Table.from_batches(batches or [pa.RecordBatch.from_pylist([], schema=arrow)])
        return spark.createDataFrame(table, schema=schema)

    return EpochOutput(sum(len(batch) for batch in batches), True, frame)


def remote_output(
    spark: SparkSession,
    servers: Sequence[ServerAddress],
    at: Attempt,
    operator: str,
    access: Access,
    schema: StructType,
    shared: SharedFrame | None,
) -> EpochOutput:
    """One that stays in the servers; they may still have to make it. ``shared``: of a query with a sink of ours."""

    def frame(at: Attempt | None) -> DataFrame:
        each = max(1, -(-spark.sparkContext.defaultParallelism // len(servers)))
        parts = tuple(Part(address, number, each) for address in servers for number in range(each))
        numbers = spark.range(0, len(parts), 1, len(parts))
        return numbers.mapInArrow(EmitTask(parts, at, operator, access), schema)

    def through(shared: SharedFrame, write: Write) -> None:
        with _telling(spark.sparkContext, access.run, at):
            write(shared.get(servers, lambda: frame(None)))

    own = cache(lambda: frame(at))
    return EpochOutput(None, False, own, None if shared is None else partial(through, shared))


@contextmanager
def _telling(context: SparkContext, run: str, at: Attempt) -> Iterator[None]:
    """Jobs that this thread begins meanwhile read this emission."""
    context.setLocalProperty(_property(run), f"{at.epoch} {at.try_}")
    try:
        yield
    finally:
        context.setLocalProperty(_property(run), None)  # type: ignore[arg-type]
