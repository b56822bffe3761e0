"""What an epoch emits, as a DataFrame for the sink. It may be read any number of times.

Small emissions come with the server's answer and become a local table: no extra job. Large ones stay in the servers,
and tasks fetch their share each time the DataFrame is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tailrace.server.client import connect
from tailrace.server.protocol import Access, EmissionInfo, ServerAddress
from tailrace.spark.worker import settle

LOCAL_ROWS_MAX = 20_000


@dataclass(frozen=True)
class Part:
    """Some batches of one server's emission."""

    address: ServerAddress
    epoch: int
    try_: int
    first: int
    last: int


@dataclass(frozen=True)
class EmitTask:
    """The function of ``mapInArrow`` over part numbers."""

    parts: tuple[Part, ...]
    operator: str
    access: Access

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                part = self.parts[number]
                client = connect(part.address, self.access)
                yield from client.emission(part.epoch, part.try_, (part.first, part.last), self.operator)
        settle()


@dataclass(frozen=True)
class Emission:
    """An epoch's rows. ``local``: they are in the driver already."""

    rows: int
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
    emissions: Sequence[tuple[ServerAddress, EmissionInfo]],
    operator: str,
    access: Access,
    schema: StructType,
) -> Emission:
    def frame() -> DataFrame:
        parts = tuple(_parts(emissions, spark.sparkContext.defaultParallelism))
        numbers = spark.range(0, len(parts), 1, max(1, len(parts)))
        return numbers.mapInArrow(EmitTask(parts, operator, access), schema)

    return Emission(sum(info.rows for _, info in emissions), False, cache(frame))


def _parts(emissions: Sequence[tuple[ServerAddress, EmissionInfo]], wanted: int) -> Iterator[Part]:
    """About ``wanted`` parts of about equal size; the same emission is always cut alike."""
    batches = sum(info.batches for _, info in emissions)
    step = max(1, -(-batches // wanted))
    for address, info in emissions:
        for first in range(0, info.batches, step):
            yield Part(address, info.epoch, info.try_, first, min(first + step, info.batches))
