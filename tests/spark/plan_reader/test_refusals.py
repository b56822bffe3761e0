"""What Tailrace does not take of a plain query it names, in the user's words. Nothing is started."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.api.relations import OutputMode
from tailrace.spark.plan_reader.reader import read_plan

Ask = Callable[[DataFrame], DataFrame]


def by_window(rows: DataFrame, *keys: object) -> DataFrame:
    return rows.withWatermark("ts", "1 second").groupBy(F.window("ts", "5 seconds"), *keys).count()  # type: ignore[arg-type]


NEAR = "at >= ts AND at < ts + INTERVAL 9 SECONDS"


def streams_joined(rows: DataFrame, how: str, condition: str, left: str | None, right: str | None) -> DataFrame:
    one, other = rows.select("ts", "k"), rows.selectExpr("ts AS at", "k AS same")
    one = one if left is None else one.withWatermark("ts", left)
    other = other if right is None else other.withWatermark("at", right)
    return one.join(other, F.expr(condition), how)


def in_windows(rows: DataFrame, time: str) -> DataFrame:
    named = rows.withColumnRenamed("ts", time).withWatermark(time, "1 second")
    return named.select(F.window(time, "5 seconds").alias("window"), "k")


REFUSED: dict[str, tuple[Ask, str]] = {
    "a collated key": (lambda rows: rows.groupBy(F.collate("s", "UNICODE_CI")).count(), "collate.*UNICODE_CI"),
    "a collated value": (lambda rows: rows.groupBy("k").agg(F.max(F.collate("s", "UNICODE"))), "collate.*UNICODE"),
    "a collated order": (lambda rows: rows.agg(F.min_by("k", F.collate("s", "UTF8_LCASE"))), "UTF8_LCASE"),
    "a double as key": (lambda rows: rows.groupBy((F.col("d") * 2).alias("x")).count(), r"\(d \* .*2.*double"),
    "a struct with a double as key": (lambda rows: rows.groupBy(F.struct("k", "d")).count(), "struct.*double"),
    "the largest array": (lambda rows: rows.groupBy("k").agg(F.max(F.array("k"))), r"no order of.*array<bigint>"),
    "an order with an array": (
        lambda rows: rows.groupBy("k").agg(F.max_by("k", F.struct("s", F.array("k")))),
        "of array<bigint>, by which Tailrace does not sort",
    ),
    "an interval": (lambda rows: rows.agg(F.sum(F.expr("ts - timestamp'2026-01-01'"))), "interval"),
    "first": (lambda rows: rows.groupBy("k").agg(F.first("s")), r"first\(s\).*order in which rows come"),
    "a sketch": (lambda rows: rows.groupBy("k").agg(F.approx_count_distinct("s")), "approx_count_distinct.*sketch"),
    "no such function": (lambda rows: rows.groupBy("k").agg(F.skewness("d")), r"skewness\(d\)"),
    "a mean of different values": (lambda rows: rows.groupBy("k").agg(F.expr("avg(DISTINCT d)")), "DISTINCT d"),
    "a sum that gives null": (lambda rows: rows.groupBy("k").agg(F.try_sum("k")), "does not fit"),
    "a set of doubles": (lambda rows: rows.groupBy("k").agg(F.collect_set("d")), "-0.0"),
    "several shares": (lambda rows: rows.agg(F.percentile("d", [0.1, 0.2])), "one constant share"),
    "a share from above": (lambda rows: rows.agg(F.expr("percentile(d, 0.1, k)")), "count once"),
    "the event time as key beside a window": (
        lambda rows: rows.withWatermark("ts", "1 second").groupBy("ts", F.window("ts", "5 seconds")).count(),
        r"groupBy\(ts\).*event time itself and by a window",
    ),
    "a filter on the window": (
        lambda rows: rows.select(F.window("ts", "5 seconds").alias("w")).where("w.start > '2026'").groupBy("w").count(),
        r"where\(.*start.* > .*\) is about the window",
    ),
    "an aggregate of the window": (
        lambda rows: rows.groupBy(F.window("ts", "5 seconds")).agg(F.max(F.col("window.end"))),
        r"window.*known to the operator alone",
    ),
    "a watermark on another": (
        lambda rows: by_window(rows.withWatermark("ts", "1 second").union(rows.withWatermark("ts", "9 seconds"))),
        "called behind the union of streams that have watermarks",
    ),
    "united with a stream without a watermark": (
        lambda rows: rows.withWatermark("ts", "1 second").union(rows).groupBy(F.window("ts", "5 seconds")).count(),
        "of united streams each needs a watermark",
    ),
    "a watermark above": (
        lambda rows: by_window(rows).select(F.window_time("window").alias("t")).withWatermark("t", "1 second"),
        "withWatermark behind an operator",
    ),
    "the time of day above": (
        lambda rows: by_window(rows).withColumn("now", F.current_timestamp()),
        "current_timestamp.*replay",
    ),
    "chance above": (lambda rows: by_window(rows).where(F.rand() < 0.5), "rand.*replay"),
    "a limit above": (lambda rows: by_window(rows).limit(3), r"limit\(\)"),
    "a join on windows of united streams": (
        lambda rows: in_windows(rows, "ts").union(in_windows(rows, "ts")).join(in_windows(rows, "at"), ["window", "k"]),
        "one side of a join are several streams",
    ),
    "a union of an operator's rows and others": (
        lambda rows: by_window(rows).select("count").union(rows.select("k")),
        "a Union of an operator's rows and of rows that none has seen",
    ),
    "a union of operators with one event time": (
        lambda rows: by_window(rows).select("count").union(rows.groupBy("k").count().select("k")),
        "1 of 2 streams have a watermark",
    ),
    "an outer join on rows of both": (
        lambda rows: streams_joined(rows, "left", f"k = same AND {NEAR} AND k + same < 9", "1 second", "1 second"),
        r"\(k \+ same\) < .*9.*LeftOuter join",
    ),
    "an outer join by days": (
        lambda rows: streams_joined(
            rows, "left", "k = same AND at >= ts AND at < ts + make_interval(0, 1)", "1 second", "1 second"
        ),
        "make_interval.*in hours or less",
    ),
    "a condition of rows given alone": (
        lambda rows: streams_joined(rows, "left", f"k = same AND {NEAR} AND k > 3", "1 second", "1 second"),
        r"k > .*side whose rows are given without a match.*let ts have no nulls",
    ),
    "an anti join": (
        lambda rows: streams_joined(rows, "left_anti", f"k = same AND {NEAR}", "1 second", "1 second"),
        "LeftAnti join",
    ),
    "a join without keys": (lambda rows: streams_joined(rows, "inner", "k < same", None, None), "needs an equality"),
    "a join with one watermark": (
        lambda rows: streams_joined(rows, "inner", "k = same AND at >= ts", "1 second", None),
        "of which one has a watermark",
    ),
    "a join for ever": (
        lambda rows: streams_joined(rows, "inner", "k = same", "1 second", "1 second"),
        "keeps every row for ever",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def rows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    schema = "k bigint, s string, d double, ts timestamp"
    return spark.readStream.schema(schema).parquet(str(tmp_path_factory.mktemp("in")))


def test_groups_by_a_time_that_may_be_null_are_final(rows: DataFrame) -> None:
    """Spark has a group of rows without an event time, which it never ends."""
    counts = rows.withWatermark("ts", "1 second").groupBy("ts").count()
    read_plan(counts)
    with pytest.raises(tr.AnalysisError, match="let the column have no nulls"):
        read_plan(counts, OutputMode.UPDATE)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(rows: DataFrame, name: str) -> None:
    ask, message = REFUSED[name]
    with pytest.raises(tr.AnalysisError, match=message):
        read_plan(ask(rows))
