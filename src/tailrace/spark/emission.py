"""What an epoch emits, as a DataFrame for the sink. It may be read any number of times.

Small emissions come with the server's answer and become a local table: no extra job. Large ones stay in the servers,
and tasks fetch their share each time the DataFrame is read. Such a DataFrame can be made, and read, before the servers
have emitted: tasks wait there until they have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tailrace.server.client import connect
from tailrace.server.protocol import Access, ServerAddress
from tailrace.spark.worker import settle

LOCAL_ROWS_MAX = 20_000


@dataclass(frozen=True)
class Part:
    """One of several parts of one server's emission."""

    address: ServerAddress
    number: int
    of: int


@dataclass(frozen=True)
class EmitTask:
    """The function of ``mapInArrow`` over part numbers."""

    parts: tuple[Part, ...]
    epoch: int
    try_: int
    operator: str
    access: Access

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                part = self.parts[number]
                client = connect(part.address, self.access)
                yield from client.emission(self.epoch, self.try_, self.operator, part.number, part.of)
        settle()


@dataclass(frozen=True)
class Emission:
    """An epoch's rows. ``local``: they are in the driver already. ``rows``: how many, None while nobody knows."""

    rows: int | None
    local: bool
    frame: Callable[[], DataFrame]
    """Makes the DataFrame; a sink that does not need one saves Spark the work."""

    def prepare(self) -> None:
        """Make the DataFrame of rows that are not local already now: every sink reads those."""
        if not self.local:
            self.frame()


def local_emission(
    spark: SparkSession, batches: Sequence[pa.RecordBatch], arrow: pa.Schema, schema: StructType
) -> Emission:
    def frame() -> DataFrame:
        # PySpark cannot take a table without any batch.
        table = pa.Table.from_batches(batches or [pa.RecordBatch.from_pylist([], schema=arrow)])
        return spark.createDataFrame(table, schema=schema)

    return Emission(sum(len(batch) for batch in batches), True, frame)


def remote_emission(
    spark: SparkSession,
    servers: Sequence[ServerAddress],
    epoch: int,
    try_: int,
    operator: str,
    access: Access,
    schema: StructType,
) -> Emission:
    """One that stays in the servers; they may still have to make it."""

    def frame() -> DataFrame:
        each = max(1, -(-spark.sparkContext.defaultParallelism // len(servers)))
        parts = tuple(Part(address, number, each) for address in servers for number in range(each))
        numbers = spark.range(0, len(parts), 1, len(parts))
        return numbers.mapInArrow(EmitTask(parts, epoch, try_, operator, access), schema)

    return Emission(None, False, cache(frame))
