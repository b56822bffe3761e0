"""An epoch that is replayed in other tasks, or in tasks with other numbers: doubles are the same to the last bit."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

import tailrace as tr
from tailrace.commit.log import CommitLog
from tailrace.env.stores.local_store import LocalStore
from tailrace.testing import ScriptedSource

FILES = 6
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.float64())])
PARALLELISM, OPEN_COST = "spark.sql.leafNodeDefaultParallelism", "spark.sql.files.openCostInBytes"


def batches(count: int) -> list[pa.Table]:
    """Doubles of all sizes: hardly two orders of adding them give the same sum."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)

    def values() -> list[float]:
        return [draw.uniform(-1, 1) * 10.0 ** draw.randrange(-9, 9) for _ in range(300)]

    return [pa.table([[n % 3 for n in range(300)], values()], schema=SCHEMA) for _ in range(count)]


class Sums:
    """A query of sums, and the bits of what it gave, by epoch."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.checkpoint = spark, path / "check"
        self.source = ScriptedSource(path / "in", SCHEMA, files_per_epoch=FILES)
        self.seen: dict[int, list[dict[int, bytes]]] = {}

    def feed_and_run(self, tables: list[pa.Table], **options: str) -> None:
        self.source.add(tables)
        self.run(self.source.stream(self.spark), **options)

    def run(self, frame: DataFrame, **options: str) -> None:
        def save(batch: DataFrame, epoch: int) -> None:
            rows = {row.k: struct.pack("<d", row.total) for row in batch.collect()}
            self.seen.setdefault(epoch, []).append(rows)

        stream: Any = tr.stream(frame).groupBy("k").agg(tr.sum("v").alias("total"))
        writer = stream.writeStream.outputMode("update").foreachBatch(save).options(**options)
        query = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()

    def partitions(self) -> int:
        """Tasks of the newest durable epoch."""
        newest = CommitLog(LocalStore(self.checkpoint / "tailrace")).read().newest
        assert newest is not None
        return int(newest.epoch_config["partitions"])

    def forget(self, mode: str, epoch: int) -> None:
        """As after a crash: of an epoch that its sink has got, Spark's commit is missing, or ours."""
        if mode == "sync":
            for path in self.checkpoint.glob(f"commits/*{epoch}*"):
                path.unlink()
            return
        log = CommitLog(LocalStore(self.checkpoint / "tailrace")).read().newest
        assert log is not None and log.epoch == epoch
        (self.checkpoint / "tailrace" / "log" / f"{log.number:020d}.json").unlink()


@contextmanager
def session(spark: SparkSession, parallelism: int) -> Iterator[None]:
    """A session as on a machine with so many cores, whose small files are worth a task each."""
    spark.conf.set(PARALLELISM, str(parallelism))
    spark.conf.set(OPEN_COST, "1")
    try:
        yield
        assert spark.conf.get(PARALLELISM) == str(parallelism), "the user's own setting is back"
    finally:
        spark.conf.unset(PARALLELISM)
        spark.conf.unset(OPEN_COST)


@pytest.mark.parametrize(
    ("mode", "route"),
    [("async", "direct"), ("sync", "direct"), pytest.param("async", "shuffle", marks=pytest.mark.long)],
)
def test_a_replay_with_other_cores_gives_the_same_doubles(
    spark: SparkSession, tmp_path: Path, mode: str, route: str
) -> None:
    query, every = Sums(spark, tmp_path), batches(4)
    with session(spark, 6):
        query.feed_and_run(every[:3], commit=mode, route=route)
        before = query.partitions()
    query.forget(mode, 2)
    with session(spark, 2):
        query.feed_and_run(every[3:], commit=mode, route=route)
        assert route == "shuffle" or query.partitions() < before, "later epochs are cut as they are now"
    first, again = query.seen[2]
    assert first == again
    assert [len(query.seen[epoch]) for epoch in sorted(query.seen)] == [1, 1, 2, 1]


TASKS = 4


def register_parts(spark: SparkSession) -> None:
    """A source that gives an epoch in the same parts, and their tasks other numbers each time it is made, as Kafka's
    may: it takes them from a map. Its option ``turned`` says by how much. Made here: workers have no module of tests.
    """

    class Part(InputPartition):
        def __init__(self, number: int, first: int, last: int) -> None:
            self.number, self.first, self.last = number, first, last

    class Reader(DataSourceStreamReader):
        def __init__(self, options: dict[str, str]) -> None:
            self._turned = int(options["turned"])

        def initialOffset(self) -> dict[str, int]:
            return {"at": 0}

        def latestOffset(self) -> dict[str, int]:
            return {"at": 300}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Part]:
            numbers = [(each + self._turned) % TASKS for each in range(TASKS)]
            return [Part(number, start["at"], end["at"]) for number in numbers]

        def read(self, partition: Part) -> Iterator[tuple[int, float]]:
            draw = random.Random(partition.number * 1000 + partition.first)
            for n in range(partition.first, partition.last):
                yield n % 3, draw.uniform(-1, 1) * 10.0 ** draw.randrange(-9, 9)

    class Parts(DataSource):
        @classmethod
        def name(cls) -> str:
            return "parts"

        def schema(self) -> str:
            return "k bigint, v double"

        def streamReader(self, schema: object) -> DataSourceStreamReader:
            return Reader(self.options)

    spark.dataSource.register(Parts)


@pytest.mark.long
def test_a_replay_whose_tasks_have_other_numbers_gives_the_same_doubles(spark: SparkSession, tmp_path: Path) -> None:
    register_parts(spark)
    query = Sums(spark, tmp_path)
    for turned in (0, 3):
        query.run(spark.readStream.format("parts").option("turned", turned).load())
        assert query.partitions() == TASKS
        query.forget("sync", 0)
    first, again = query.seen[0]
    assert first == again
