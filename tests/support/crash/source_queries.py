"""The sources that a query with an asynchronous commit may read, each giving the same numbered rows.

Row ``n`` is ``row(n)``. Which rows an epoch took is read from Spark's own log of offsets; what the query then had to
emit is recomputed from those rows alone, for a sum and a count by key that every epoch emits of the keys it saw.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tailrace.commit.spark_logs.log_files import spark_epochs
from tailrace.env.stores.object_store import ObjectStore
from tailrace.lab.servers.kafka import PARTITIONS
from tailrace.testing import ScriptedSource

ROWS = 40
"""Of an epoch that is planned by itself."""
START_MS = 1_700_000_000_000
_SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def row(n: int) -> tuple[int, int]:
    return n % 7, n * n - 40


def answers(epochs: Sequence[Iterable[int]]) -> list[set[tuple[int, int, int]]]:
    """Of each epoch, given the numbers of its rows: key, sum and count of every key in it, over all so far."""
    totals: dict[int, tuple[int, int]] = {}
    made = []
    for numbers in epochs:
        seen = set()
        for k, v in map(row, numbers):
            total, count = totals.get(k, (0, 0))
            totals[k] = (total + v, count + 1)
            seen.add(k)
        made.append({(k, *totals[k]) for k in seen})
    return made


def epochs_taken(case: SourceCase, checkpoint: ObjectStore) -> list[list[int]]:
    """The numbers of the rows of each epoch that Spark has planned."""
    planned = spark_epochs(checkpoint, "offsets")
    assert planned == list(range(len(planned)))
    offsets = [json.loads(offset_line(checkpoint, epoch)) for epoch in planned]
    return [case.numbers(before, after) for before, after in zip([None, *offsets[:-1]], offsets)]


def offset_line(checkpoint: ObjectStore, epoch: int) -> str:
    """What Spark has planned of the source: a line with the version comes first, and one with the time and confs."""
    return checkpoint.get(f"offsets/{epoch}").decode().splitlines()[2]


class SourceCase(ABC):
    """``config``: that of the child process which runs the query; it names ``root``, and Kafka's ``bootstrap``."""

    endless = False

    def feed_files(self, root: Path, epochs: int) -> None:  # noqa: B027  # most have none
        """From the test's process."""

    def feed(self, spark: SparkSession, config: Mapping[str, Any]) -> None:  # noqa: B027  # most need none
        """From the child, before its query starts."""

    @abstractmethod
    def frame(self, spark: SparkSession, config: Mapping[str, Any]) -> DataFrame:
        """``k`` and ``v``."""

    @abstractmethod
    def numbers(self, before: Any, after: Any) -> list[int]:
        """The rows between two of Spark's offsets; ``before`` is None at the first epoch."""


class Files(SourceCase):
    def feed_files(self, root: Path, epochs: int) -> None:
        rows = [[row(n) for n in range(epoch * ROWS, (epoch + 1) * ROWS)] for epoch in range(epochs)]
        tables = [pa.table([pa.array(column, pa.int64()) for column in zip(*each)], schema=_SCHEMA) for each in rows]
        ScriptedSource(root / "in", _SCHEMA).add(tables)

    def frame(self, spark: SparkSession, config: Mapping[str, Any]) -> DataFrame:
        return ScriptedSource(Path(config["root"]) / "in", _SCHEMA).stream(spark)

    def numbers(self, before: Any, after: Any) -> list[int]:
        first = 0 if before is None else before["logOffset"] + 1
        return list(range(first * ROWS, (after["logOffset"] + 1) * ROWS))


class RateMicroBatch(SourceCase):
    endless = True

    def frame(self, spark: SparkSession, config: Mapping[str, Any]) -> DataFrame:
        reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
        frame = reader.option("startTimestamp", START_MS).option("numPartitions", 2).load()
        return frame.selectExpr("value % 7 AS k", "value * value - 40 AS v")

    def numbers(self, before: Any, after: Any) -> list[int]:
        return list(range(0 if before is None else before["offset"], after["offset"]))


class Kafka(SourceCase):
    """Row ``n`` lies in partition ``n mod PARTITIONS``."""

    def feed(self, spark: SparkSession, config: Mapping[str, Any]) -> None:
        rows = spark.range(0, config["rows"], 1, 1)  # one task: the order within a partition is that of the numbers
        messages = rows.selectExpr(
            "concat(id % 7, ',', id * id - 40) AS value",
            f"CAST(id % {PARTITIONS} AS INT) AS partition",
        )
        messages.write.format("kafka").options(**self._place(config)).option("topic", config["topic"]).save()

    def frame(self, spark: SparkSession, config: Mapping[str, Any]) -> DataFrame:
        reader = spark.readStream.format("kafka").options(**self._place(config)).option("subscribe", config["topic"])
        reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", ROWS)
        for name, value in config.get("reader", {}).items():
            reader = reader.option(name, value)
        pair = "split(CAST(value AS STRING), ',')"
        return reader.load().selectExpr(f"CAST({pair}[0] AS BIGINT) AS k", f"CAST({pair}[1] AS BIGINT) AS v")

    def numbers(self, before: Any, after: Any) -> list[int]:
        def ends(offset: Any) -> dict[str, int]:
            return {} if offset is None else dict(*offset.values())

        first = ends(before)
        return [
            n * PARTITIONS + int(partition)
            for partition, end in ends(after).items()
            for n in range(first.get(partition, 0), end)
        ]

    def _place(self, config: Mapping[str, Any]) -> dict[str, str]:
        return {"kafka.bootstrap.servers": config["bootstrap"]}


SOURCES: Mapping[str, SourceCase] = {"file": Files(), "rate-micro-batch": RateMicroBatch(), "kafka": Kafka()}
