"""Joins of two streams against Spark's own: the same rows in the end, with nulls among keys and without a late row."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
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

    def __init__(self, spark: SparkSession, path: Path, seed: int, behind: int = 0) -> None:
        """``behind``: how many seconds the right stream's times are behind those of the left."""
        rng = random.Random(seed)
        self.spark, self.path = spark, path
        self.sources = []
        for name, schema, lag in (("left", LEFT, 0), ("right", RIGHT, behind)):
            source = ScriptedSource(path / name, schema)
            source.add(tuple(self._batch(rng, schema, epoch, lag) for epoch in range(EPOCHS + 3)))
            self.sources.append(source)

    def _batch(self, rng: random.Random, schema: pa.Schema, epoch: int, lag: int) -> pa.Table:
        if epoch >= EPOCHS:
            rows = [("end", (END + 100 * epoch) * SECOND, 0)]
        else:
            times = [(1_000 + 6 * epoch + rng.randrange(8) - lag) * SECOND + rng.randrange(1, 1_000) for _ in range(12)]
            rows = [(rng.choice([None, None, "a", "b", "ä"]), time, rng.randrange(10**9)) for time in times]
        columns = list(zip(*rows, strict=True))
        return pa.table(
            [pa.array(column, each.type) for column, each in zip(columns, schema, strict=True)], schema=schema
        )

    def frames(self) -> Iterator[DataFrame]:
        return (source.stream(self.spark) for source in self.sources)

    def tailrace(self, kind: str, how: str) -> Any:
        left, right = (
            tr.stream(frame).withWatermark(time, "10 seconds")
            for frame, time in zip(self.frames(), ("lt", "rt"), strict=True)
        )
        if kind == "interval":
            return left.join(right, "k", how, within=("-4 seconds", "6 seconds"))
        return left.join(right, "k", how, window=tr.window("lt", "10 seconds"))

    def theirs(self, kind: str, how: str) -> DataFrame:
        left, right = (
            frame.withWatermark(time, "10 seconds") for frame, time in zip(self.frames(), ("lt", "rt"), strict=True)
        )
        right = right.withColumnRenamed("k", "rk")
        if kind == "interval":
            spans = F.expr("rt >= lt - INTERVAL 4 SECONDS AND rt <= lt + INTERVAL 6 SECONDS")
            met = left.join(right, (F.col("k") == F.col("rk")) & spans, how)
            windows = []
        else:
            left, right = (
                left.withColumn("w", F.window("lt", "10 seconds")),
                right.withColumn("v", F.window("rt", "10 seconds")),
            )
            met = left.join(right, (F.col("k") == F.col("rk")) & (F.col("w") == F.col("v")), how)
            windows = [(F.col("w") if how == "left_semi" else F.coalesce("w", "v")).alias("window")]
        if how == "left_semi":
            return met.select(*windows, "k", "lt", "a")
        return met.select(*windows, F.coalesce("k", "rk").alias("k"), "lt", "a", "rt", "b")

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
        every = [row for rows in shown.values() for row in rows]
        return Counter(repr(tuple(row.values())) for row in every if row["k"] != "end")


@pytest.mark.parametrize(("kind", "how"), CASES if LONG else drawn_cases(CASES, __name__))
def test_equals_sparks_own(spark: SparkSession, tmp_path: Path, kind: str, how: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    sides = Sides(spark, tmp_path, seed)
    ours = sides.rows(sides.tailrace(kind, how), "ours")
    theirs = sides.rows(sides.theirs(kind, how), "theirs")
    assert ours == theirs, f"missing {theirs - ours}, too many {ours - theirs}"
    assert len(theirs) > 8


def test_the_largest_watermark_counts_where_the_session_says_so(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of the stream that is behind are late then, here as in Spark."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    sides = Sides(spark, tmp_path, seed, behind=12)
    patient = sides.rows(sides.tailrace("interval", "full"), "patient", watermark="spark")
    spark.conf.set(POLICY, "max")
    try:
        ours = sides.rows(sides.tailrace("interval", "full"), "ours", watermark="spark")
        theirs = sides.rows(sides.theirs("interval", "full"), "theirs")
    finally:
        spark.conf.unset(POLICY)
    assert ours == theirs != patient, f"missing {theirs - ours}, too many {ours - theirs}"
