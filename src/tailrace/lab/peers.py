"""The engines of a comparison: each is a set of confs and a streaming query over the same folder of files.

Every engine computes sum, count and max of ``value`` per ``key`` in update mode and hands every changed row to the
sink (``bench_sinks``); the two floors keep no state and hand over what they can. No engine may skip making its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.lab.events import KEYED_SCHEMA

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_STATE = "org.apache.spark.sql.execution.streaming.state"

ROCKSDB_CONFS = {
    _PROVIDER: f"{_STATE}.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}
"""Spark's RocksDB store at its best: changelogs instead of whole files, and no lookup before each write."""

MEMORY_CONFS = {_PROVIDER: f"{_STATE}.HDFSBackedStateStoreProvider"}


@dataclass(frozen=True)
class Engine:
    name: str
    write: Callable[[DataFrame], Any]
    """From the streaming DataFrame to the ``writeStream`` of its result."""
    confs: Mapping[str, str] = field(default_factory=dict)
    heap: str = "2g"
    exact: bool = True
    """Whether it answers the query, and so is checked; the floors do not."""


def read_feed(spark: SparkSession, feed: str) -> DataFrame:
    return spark.readStream.schema(KEYED_SCHEMA).option("maxFilesPerTrigger", 1).parquet(feed)


def _spark_aggregate(rows: DataFrame) -> Any:
    totals = rows.groupBy("key").agg(
        F.sum("value").alias("total"), F.count("value").alias("n"), F.max("value").alias("top")
    )
    return totals.writeStream.outputMode("update")


def _tailrace_aggregate(rows: DataFrame) -> Any:
    totals = (
        tr.stream(rows)
        .groupBy("key")
        .agg(tr.sum("value").alias("total"), tr.count("value").alias("n"), tr.max("value").alias("top"))
    )
    return totals.writeStream.outputMode("update")


def _pass_through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _count_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"n": pa.array([sum(batch.num_rows for batch in batches)], pa.int64())})


def _shuffle_floor(rows: DataFrame) -> Any:
    return rows.repartition("key").mapInArrow(_pass_through, KEYED_SCHEMA).writeStream.outputMode("append")


def _transfer_floor(rows: DataFrame) -> Any:
    return rows.mapInArrow(_count_rows, "n bigint").writeStream.outputMode("append")


ENGINES = {
    engine.name: engine
    for engine in (
        # The peers keep their state in or beside the JVM's heap: they get more of it than they need.
        Engine("spark-rocksdb", _spark_aggregate, ROCKSDB_CONFS, heap="4g"),
        Engine("spark-memory", _spark_aggregate, MEMORY_CONFS, heap="6g"),
        Engine("tailrace", _tailrace_aggregate),
        Engine("shuffle-floor", _shuffle_floor, exact=False),
        Engine("transfer-floor", _transfer_floor, exact=False),
    )
}
