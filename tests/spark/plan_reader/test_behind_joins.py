"""Joins of what operators give, and operators behind joins: Spark's rows, once all windows have closed."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from support.queries.plain import START, PlainQuery, batches, closing

Ask = Callable[[DataFrame], DataFrame]


def counted(rows: DataFrame, time: str, name: str, delay: str) -> DataFrame:
    marked = rows.withColumnRenamed("ts", time).withWatermark(time, delay)
    return marked.groupBy(F.window(time, "10 seconds").alias("w"), "i").agg(F.count("*").alias(name))


def counts_joined(how: str) -> Ask:
    """Two aggregations on their windows and a key, and what is made of the window behind it."""

    def ask(rows: DataFrame) -> DataFrame:
        left = counted(rows.where("b OR text = 'end'"), "ts", "n", "5 seconds")
        right = counted(rows.where("NOT b OR b IS NULL"), "at", "m", "8 seconds")
        return left.join(right, ["w", "i"], how).selectExpr("w.start", "w", "i", "n + coalesce(m, 0) AS n")

    return ask


def pairs(rows: DataFrame, how: str) -> DataFrame:
    timed = F.coalesce("ts", F.lit(START)).alias("ts")
    left = rows.where("b OR text = 'end'").select(timed, "i", "text").withWatermark("ts", "1 second")
    right = rows.selectExpr("ts AS at", "i AS j", "l").where("at IS NOT NULL AND j IS NOT NULL")
    near = "i = j AND at >= ts - INTERVAL 4 SECONDS AND at < ts + INTERVAL 19 SECONDS"
    return left.join(right.withWatermark("at", "1 second"), F.expr(near), how)


def windows_of_pairs(rows: DataFrame) -> DataFrame:
    """By the event time of the left rows, which are older than what they match."""
    made = pairs(rows, "inner").where("l > 0").groupBy(F.window("ts", "2 seconds"), F.upper("text").alias("text"))
    return made.agg(F.count("*").alias("n"), F.sum("l")).select("window.end", "text", "n", "sum(l)")


def windows_of_left_rows(rows: DataFrame) -> DataFrame:
    made = pairs(rows, "left").groupBy(F.window("ts", "5 seconds")).agg(F.count("*").alias("n"), F.count("j"))
    return made.where("n > 0").drop("window")


def pairs_of_counts(rows: DataFrame) -> DataFrame:
    """A range of the last moments of windows, and windows of the pairs."""
    left = counted(rows.where("b OR text = 'end'"), "ts", "n", "5 seconds").select(
        F.window_time("w").alias("ts"), "i", "n"
    )
    right = counted(rows.where("l > 0"), "at", "m", "5 seconds")
    later = right.select(F.window_time("w").alias("at"), F.col("i").alias("j"), "m")
    near = F.expr("i = j AND at > ts AND at <= ts + INTERVAL 20 SECONDS")
    made = left.join(later, near).groupBy(F.window("at", "20 seconds"), "i").agg(F.sum(F.col("n") * F.col("m")))
    return made.select("window.start", "i", "sum((n * m))")


CASES = {
    "counts": counts_joined("inner"),
    "left counts": counts_joined("left"),
    "windows of pairs": windows_of_pairs,
    "windows of left rows": windows_of_left_rows,
    "pairs of counts": pairs_of_counts,
}


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", CASES)
def test_the_same_rows_in_the_end(spark: SparkSession, tmp_path: Path, name: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    tables = [*batches(random.Random(seed)), *closing(count=4)]
    ours = PlainQuery(spark, tmp_path, tables, CASES[name])
    assert ours.check_in_the_end() > 8
