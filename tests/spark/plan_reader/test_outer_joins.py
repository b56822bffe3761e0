"""Outer and semi joins of plain queries give Spark's rows, once nothing waits for a match any more."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from support.draw import drawn
from support.queries.plain import START, PlainQuery, batches, closing

Ask = Callable[[DataFrame], DataFrame]
NEAR = "at > a.ts - INTERVAL 4 SECONDS AND at <= a.ts + INTERVAL 9 SECONDS"
SEMI = "upper(text) = upper(other) AND a.ts > at AND at >= a.ts - INTERVAL 12 SECONDS AND l > 0"
LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"


def sides(rows: DataFrame) -> tuple[DataFrame, DataFrame]:
    """With nulls among the left keys: right ones Spark's full outer join would join with these."""
    timed = F.coalesce("ts", F.lit(START)).alias("ts")  # so that a condition may be about the side that is given alone
    left = rows.where("b OR text = 'end'").select(timed, "i", "text", "unique")
    right = rows.select(F.col("ts").alias("at"), F.col("i").alias("j"), F.col("text").alias("other"), "l", "unique")
    right = right.where("at IS NOT NULL AND j IS NOT NULL")
    return left.withWatermark("ts", "5 seconds"), right.withWatermark("at", "10 seconds")


def joined(how: str, condition: str) -> Ask:
    def ask(rows: DataFrame) -> DataFrame:
        left, right = sides(rows)
        pairs = left.alias("a").join(right.alias("b"), F.expr(condition), how)
        if how == "left_semi":
            return pairs.where("NOT (text <=> 'end')")
        shown = pairs.where("NOT (coalesce(text, other) <=> 'end')")
        return shown.select("a.unique", "b.unique", "i", "j", "text", "other", (F.col("l") + 1).alias("more"))

    return ask


def semi_joined_by_spark(rows: DataFrame) -> DataFrame:
    """Not by Spark's left semi join: it loses rows whose match comes in the same batch and is too old to be kept."""
    left, right = sides(rows)
    pairs = left.alias("a").join(right.alias("b"), F.expr(SEMI), "inner").where("NOT (text <=> 'end')")
    return pairs.select("ts", "i", "text", "a.unique").dropDuplicates(["unique"])


def check(spark: SparkSession, path: Path, how: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    tables = [*batches(random.Random(seed)), *closing()]
    query = PlainQuery(spark, path, tables, CASES[how], spark_asks=SPARK_ASKS.get(how))
    assert query.check_in_the_end() > 20


CASES = {
    "left": joined("left", f"i = j AND {NEAR} AND l > 0 AND a.text != 'ab'"),
    "right": joined(
        "right",
        "a.unique % 3 != 0 AND i = j AND at BETWEEN a.ts - INTERVAL 4 SECONDS AND a.ts + INTERVAL '1' SECOND",
    ),
    "full": joined("full", f"i = j AND {NEAR}"),
    "left_semi": joined("left_semi", SEMI),
}
SPARK_ASKS = {"left_semi": semi_joined_by_spark}


@pytest.mark.parametrize("how", CASES if LONG else drawn(list(CASES), __name__))
def test_of_a_range(spark: SparkSession, tmp_path: Path, how: str) -> None:
    check(spark, tmp_path, how)
