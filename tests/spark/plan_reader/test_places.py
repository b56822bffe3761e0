"""What Tailrace refuses of a plain query it names with its place in the user's program. Nothing is started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr

HERE = Path(__file__)
Ask = Callable[[DataFrame], DataFrame]


def named(rows: DataFrame) -> DataFrame:
    return rows.groupBy("k").agg(
        F.count("*"),
        F.first("s").alias("x"),  # named
    )


def argument(rows: DataFrame) -> DataFrame:
    return rows.groupBy("k").agg(F.max("s"), F.skewness(
        F.col("d") + 1  # argument
    ))  # fmt: skip


def key(rows: DataFrame) -> DataFrame:
    double = F.col("d") * 2  # key
    return rows.groupBy("k", double).count()


def above(rows: DataFrame) -> DataFrame:
    counts = rows.groupBy((F.col("k") + 1).alias("more")).count()
    return counts.where(F.rand() < 0.5)  # above


def condition(rows: DataFrame) -> DataFrame:
    left = rows.selectExpr("k", "ts").withWatermark("ts", "1 second")
    right = rows.selectExpr("k AS same", "ts AS at").withWatermark("at", "1 second")
    near = F.expr("at >= ts AND at < ts + INTERVAL 9 SECONDS")
    other = F.col("k") + F.col("same") < 9  # condition
    return left.join(right, (F.col("k") == F.col("same")) & near & other, "left")


def text(rows: DataFrame) -> DataFrame:
    rows.createOrReplaceTempView("placed_rows")
    return rows.sparkSession.sql(
        """SELECT k,
                  first(s) AS f, max(d)
           FROM placed_rows GROUP BY k"""
    )


def nowhere(rows: DataFrame) -> DataFrame:
    return rows.groupBy("k").agg(F.first("s"))


def line(mark: str) -> int:
    lines = HERE.read_text(encoding="utf-8").splitlines()
    (found,) = (number for number, each in enumerate(lines, 1) if each.endswith(f"# {mark}"))
    return found


@pytest.fixture(scope="module")
def rows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    schema = "k bigint, s string, d double, ts timestamp"
    return spark.readStream.schema(schema).parquet(str(tmp_path_factory.mktemp("in")))


def refusal(frame: DataFrame) -> str:
    with pytest.raises(tr.AnalysisError) as caught:
        tr.writeStream(frame, fallback=False).outputMode("update").start()  # started
    return str(caught.value)


@pytest.mark.parametrize("ask", [named, argument, key, above, condition], ids=lambda each: each.__name__)
def test_a_line_of_the_program(rows: DataFrame, ask: Ask) -> None:
    assert refusal(ask(rows)).endswith(f" (at {HERE}:{line(ask.__name__)})")


def test_a_line_of_sql(rows: DataFrame) -> None:
    assert refusal(text(rows)).endswith(" (at line 2 of the SQL text: first(s) AS f, max(d))")


def test_what_spark_has_no_place_of_is_of_the_query_that_is_written(rows: DataFrame) -> None:
    assert refusal(nowhere(rows)).endswith(f" (at {HERE}:{line('started')})")
