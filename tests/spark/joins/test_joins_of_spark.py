"""Joins of two streams against Spark's own, with nulls among keys: the same rows in the end."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from support.draw import drawn as drawn_cases
from tailrace.testing import ScriptedSource
from tailrace.testing.compare import rows_of

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
SECOND = 1_000_000
POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
STAMP = pa.timestamp("us", "UTC")
LEFT = pa.schema([("k", pa.string()), ("lt", STAMP), ("a", pa.int64())])
RIGHT = pa.schema([("k", pa.string()), ("rt", STAMP), ("b", pa.int64())])
EPOCHS = 5
END = 10_000
"""Seconds: rows from here on only move the watermark."""
HOWS = ["inner", "left", "right", "full", "left_semi"]
CASES = [(kind, how) for kind in ("interval", "window") for how in HOWS]


class Sides:
    """Two scripted streams, and what a join of them gave."""

    def __init__(self, spark: SparkSession, path: Path, seed: int, behind: int = 0, nulls: bool = True) -> None:
        """``behind``: how many seconds the right stream is behind the left one. ``nulls``: among its keys."""
        rng = random.Random(seed)
        self.spark, self.path = spark, path
        self.sources = []
        self._batches = []
        for name, schema, lag in (("left", LEFT, 0), ("right", RIGHT, behind)):
            keys = [None, None, "a", "b", "ä"] if nulls or schema is LEFT else ["a", "b", "ä"]
            self._batches.append([self._batch(rng, schema, epoch, lag, keys) for epoch in range(EPOCHS + 3)])
            self.sources.append(ScriptedSource(path / name, schema))

    def feed(self, first: int = 0, end: int | None = None) -> Sides:
        for source, batches in zip(self.sources, self._batches, strict=True):
            source.add(batches[first:end])
        return self

    def _batch(self, rng: random.Random, schema: pa.Schema, epoch: int, lag: int, keys: list[Any]) -> pa.Table:
        if epoch >= EPOCHS:
            rows = [("end", (END + 100 * epoch) * SECOND, 0)]
        else:
            times = [(1_000 + 6 * epoch + rng.randrange(8) - lag) * SECOND + rng.randrange(1, 1_000) for _ in range(12)]
            rows = [(rng.choice(keys), time, rng.randrange(10**9)) for time in times]
        columns = list(zip(*rows, strict=True))
        return pa.table(
            [pa.array(column, each.type) for column, each in zip(columns, schema, strict=True)], schema=schema
        )

    def streams(self) -> list[DataFrame]:
        return [source.stream(self.spark) for source in self.sources]

    def tables(self) -> list[DataFrame]:
        schemas = [stream.schema for stream in self.streams()]
        paths = [str(self.path / name) for name in ("left", "right")]
        return [self.spark.read.schema(schema).parquet(path) for schema, path in zip(schemas, paths, strict=True)]

    def tailrace(self, kind: str, how: str) -> Any:
        left, right = (
            tr.stream(frame).withWatermark(time, "10 seconds")
            for frame, time in zip(self.streams(), ("lt", "rt"), strict=True)
        )
        if kind == "interval":
            return left.join(right, "k", how, within=("-4 seconds", "6 seconds"))
        return left.join(right, "k", how, window=tr.window("lt", "10 seconds"))

    def rows(self, stream: Any, name: str, **options: str) -> Counter[str]:
        """All rows in the end, but those that only move the watermark."""
        shown: dict[int, list[dict[str, Any]]] = {}

        def save(batch: DataFrame, epoch: int) -> None:
            shown[epoch] = rows_of(batch.toArrow())

        writer = stream.writeStream.outputMode("append").foreachBatch(save).options(**options)
        query = writer.option("checkpointLocation", str(self.path / name)).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return counted([row for rows in shown.values() for row in rows])


def spark_join(sides: list[DataFrame], kind: str, how: str) -> DataFrame:
    """The same in Spark's words, with the same columns."""
    left, right = (side.withWatermark(time, "10 seconds") for side, time in zip(sides, ("lt", "rt"), strict=True))
    right = right.withColumnRenamed("k", "rk")
    shown = [F.coalesce("k", "rk").alias("k"), *map(F.col, ("lt", "a", "rt", "b"))]
    if how == "left_semi":
        shown = [F.col("k"), F.col("lt"), F.col("a")]
    if kind == "interval":
        near = F.expr("rt >= lt - INTERVAL 4 SECONDS AND rt <= lt + INTERVAL 6 SECONDS")
        return left.join(right, (F.col("k") == F.col("rk")) & near, how).select(*shown)
    # A stream of Spark's may have one event time: the window; the rows' own is a value like any other.
    none = F.expr("INTERVAL 0 SECONDS")
    left = left.select("k", F.window("lt", "10 seconds").alias("w"), (F.col("lt") + none).alias("lt"), "a")
    right = right.select("rk", F.window("rt", "10 seconds").alias("v"), (F.col("rt") + none).alias("rt"), "b")
    window = F.col("w") if how == "left_semi" else F.coalesce("w", "v")
    met = left.join(right, (F.col("k") == F.col("rk")) & (F.col("w") == F.col("v")), how)
    return met.select(window.alias("window"), *shown)


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    """Without those that only move the watermark."""
    return Counter(repr(tuple(row.values())) for row in rows if row["k"] != "end")


def drawn_seed() -> int:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return seed


@pytest.mark.parametrize(("kind", "how"), CASES if LONG else drawn_cases(CASES, __name__))
def test_equals_sparks_join_of_tables(spark: SparkSession, tmp_path: Path, kind: str, how: str) -> None:
    """No row is late, and all have waited long enough in the end: the streams' rows are those of tables."""
    sides = Sides(spark, tmp_path, drawn_seed()).feed()
    ours = sides.rows(sides.tailrace(kind, how), "ours")
    theirs = counted(rows_of(spark_join(sides.tables(), kind, how).toArrow()))
    assert ours == theirs, f"missing {theirs - ours}, too many {ours - theirs}"
    assert len(theirs) > 8


@pytest.mark.long
@pytest.mark.parametrize(("kind", "how"), CASES)
def test_equals_sparks_join_of_streams(spark: SparkSession, tmp_path: Path, kind: str, how: str) -> None:
    """Full outer without nulls on the right: there Spark joins null with null, which it does nowhere else."""
    sides = Sides(spark, tmp_path, drawn_seed(), nulls=how != "full").feed()
    ours = sides.rows(sides.tailrace(kind, how), "ours")
    theirs = sides.rows(spark_join(sides.streams(), kind, how), "theirs")
    assert ours == theirs, f"missing {theirs - ours}, too many {ours - theirs}"


def test_the_largest_watermark_counts_where_the_session_says_so(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of the stream that is behind are late then, as in Spark; and a query keeps what it has begun with."""
    sides = Sides(spark, tmp_path, drawn_seed(), behind=20).feed(0, 2)
    spark.conf.set(POLICY, "max")
    try:
        ours = sides.rows(sides.tailrace("interval", "left"), "ours", watermark="spark")
        sides.feed(2)
        theirs = sides.rows(spark_join(sides.streams(), "interval", "left"), "theirs")
    finally:
        spark.conf.unset(POLICY)
    ours += sides.rows(sides.tailrace("interval", "left"), "ours", watermark="spark")
    assert ours == theirs, f"missing {theirs - ours}, too many {ours - theirs}"
    every = counted(rows_of(spark_join(sides.tables(), "interval", "left").toArrow()))
    assert ours != every, "no row was late"
