"""Plain queries through ``tailrace.writeStream`` give Spark's rows, in the same epochs.

Few queries with much in each of them: a query costs seconds before its first row.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from support.queries.plain import SCHEMA, START, PlainQuery, batches

NUMBERS = ("i", "l", "d", "finite", "e", "wide")
VALUES = tuple(SCHEMA.names)
COMPARED = tuple(name for name in VALUES if name not in ("d", "unique"))


def rng() -> random.Random:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


def sums_and_means(rows: DataFrame) -> DataFrame:
    return rows.groupBy(F.upper("text"), (F.col("i") % 2).alias("odd")).agg(
        F.count("*"),
        *(F.sum(name) for name in ("i", "l", "d", "e")),
        *(F.avg(name) for name in NUMBERS),
        *(f(name) for f in (F.stddev, F.stddev_pop, F.var_samp, F.var_pop) for name in ("i", "finite", "e")),
        F.expr("percentile(i, 0.3)").alias("third"),
    )


def extremes_and_sets(rows: DataFrame) -> DataFrame:
    return rows.groupBy(F.col("day").alias("Day"), "b").agg(
        F.count(F.array("i", "l")),
        F.count_if(F.col("i") > 0),
        *(f(name) for f in (F.min, F.max) for name in COMPARED),
        F.max("d"),
        F.bool_and("b"),
        F.bool_or(F.col("i") > 4),
        F.min_by("text", "unique"),
        F.max_by("e", F.col("unique") * -1),
        F.collect_set("i"),
        F.collect_set("text"),
        F.expr("count(i, text)"),
    )


def filters_and_arguments(rows: DataFrame) -> DataFrame:
    """Arguments and keys that are expressions; what is above is arithmetic, a filter, a Python function."""

    @F.udf("bigint")
    def twice(value: int | None) -> int | None:
        return None if value is None else 2 * value

    names = rows.sparkSession.createDataFrame([(-1, "minus"), (0, "zero"), (1, "one")], "sign int, name string")
    made = rows.groupBy(F.signum(F.col("i")).cast("int").alias("sign")).agg(
        F.expr("sum(i * 2 + 1)").alias("sum"),
        F.expr("count(*) FILTER (WHERE b)").alias("SUM"),
        F.expr("sum(e) FILTER (WHERE i > 0 AND b)").alias("e"),
        F.expr("min_by(text, unique) FILTER (WHERE b)").alias("by"),
        F.expr("count(text, i) FILTER (WHERE b)").alias("both"),
        F.max(F.when(F.col("b"), F.length("text"))).alias("length"),
    )
    joined = made.join(names, "sign", "left").where("both > 0 OR sign IS NULL")
    chosen = joined.select("name", twice("both").alias("x"), (F.col("e") / 3).alias("x"), "by", "length")
    return chosen.withColumn("one", F.lit(1))


def tumbling(rows: DataFrame) -> DataFrame:
    window = F.window("ts", "10 seconds", startTime="-3 seconds")
    counts = rows.withWatermark("ts", "5 seconds").groupBy("text", window.alias("W")).agg(
        F.sum("l").alias("n"), F.avg("finite"), F.max("local"), F.collect_list("i")
    )  # fmt: skip
    return counts.where("n IS NOT NULL").select("w.end", "TEXT", F.col("n") + 1, "*")


def sliding_by_name(rows: DataFrame) -> DataFrame:
    """SQL over a view, sliding windows whose slide does not divide their size, HAVING, names of any case."""
    rows.withColumnRenamed("ts", "At Time").withWatermark("`At Time`", "0 seconds").createOrReplaceTempView(
        "plain_rows"
    )
    return rows.sparkSession.sql(
        """WITH kept AS (SELECT * FROM plain_rows WHERE Unique % 7 != 0)
           SELECT Window.Start, lower(k.TEXT) AS low, count(1) AS n, sum(i) FILTER (WHERE b) AS N
           FROM kept AS k GROUP BY window(`at time`, '10 seconds', '4 seconds'), lower(text) HAVING count(*) > 1"""
    )


def local_times(rows: DataFrame) -> DataFrame:
    """Times without a zone, made below the operator; no watermark."""
    early = rows.select((F.col("local") - F.expr("INTERVAL '3' HOUR")).alias("t"), "b", "i", "local")
    return early.groupBy(F.window("t", "1 minute", "30 seconds"), "b").agg(F.sum("i"), F.min("local"))


def of_all_rows(rows: DataFrame) -> DataFrame:
    """A single group of all rows."""
    return rows.agg(F.count("*").alias("n"), F.sum("i"), F.max("ts"))


def sessions(rows: DataFrame) -> DataFrame:
    visits = rows.withWatermark("ts", "4 seconds").groupBy("i", F.session_window("ts", "3 seconds").alias("visit"))
    return visits.agg(F.count("*").alias("n"), F.max("text")).select("i", "visit.*", "n", "max(text)")


def sessions_of_own_gaps(rows: DataFrame) -> DataFrame:
    """Gaps of rows' own, some of them no text that is a gap, some not longer than zero, some of the length of days."""
    gap = (
        F.when(F.col("i") > 3, "20 seconds")
        .when(F.col("i") == 3, "-1 second")
        .when(F.col("i") == 2, "0 seconds")
        .when(F.col("i") == 1, F.lit(None))
        .when(F.col("unique") % 5 == 0, "1 day 1 microsecond")
        .otherwise(F.concat(F.col("i") + 6, F.lit(" seconds")))
    )
    visits = rows.withWatermark("ts", "4 seconds").groupBy(
        "b", "day", F.session_window(F.col("ts"), gap).alias("visit")
    )
    counts = visits.agg(F.count("*").alias("n"), F.sum("l"), F.max("text"), F.collect_set("i"))
    return counts.withColumn("seconds", F.expr("visit.end - visit.start"))


def of_two_streams(rows: DataFrame) -> DataFrame:
    """Two parts of the stream united, and its different rows by some of their columns, whole."""
    both = rows.where("b").union(rows.where("NOT b")).withWatermark("ts", "5 seconds")
    return both.dropDuplicates(["text", "i", "day"]).select("text", "i", (F.col("i") + 1).alias("next"), "day")


def different_by_name(rows: DataFrame) -> DataFrame:
    rows.createOrReplaceTempView("rows_by_name")
    return rows.sparkSession.sql("SELECT DISTINCT upper(text) AS text, i FROM rows_by_name WHERE b")


def joined(rows: DataFrame) -> DataFrame:
    """Keys of two names and an expression; a range that is open on one side, and a condition that is no range."""
    left = rows.where("b").withWatermark("ts", "5 seconds").select("ts", "i", F.upper("text").alias("key"), "unique")
    right = rows.withWatermark("ts", "10 seconds").select(F.col("ts").alias("at"), "text", "i", "l")
    near = "at > a.ts - INTERVAL 4 SECONDS AND at <= a.ts + INTERVAL 9 SECONDS"
    pairs = left.alias("a").join(right.alias("b"), F.expr(f"key = upper(text) AND {near} AND a.i < b.i"))
    return pairs.select("unique", "a.i", "b.i", (F.col("at") - F.col("ts")).cast("string").alias("apart"), "text")


def windows_of_windows(rows: DataFrame) -> DataFrame:
    """The most frequent text of each minute: counts of ten seconds go through Spark to the next operator."""
    marked = rows.withWatermark("ts", "5 seconds").dropDuplicates(["unique", "ts"])
    counts = marked.groupBy(F.window("ts", "10 seconds"), "text").agg(F.count("*").alias("n"), F.sum("i").alias("i"))
    more = counts.where("n > 0").select(F.window_time("window").alias("at"), F.upper("text").alias("text"), "n", "i")
    return more.groupBy(F.window("at", "20 seconds", "10 seconds"), "text").agg(F.max("n"), F.sum(F.col("i") + 1))


def different_whole(rows: DataFrame) -> DataFrame:
    """Keys in another order than the columns have, and nothing above."""
    chosen = rows.where("b").select("day", "i", "text", F.lower("text").alias("low"))
    return chosen.dropDuplicates(["low", "day", "text", "i"])


def ahead(rows: DataFrame) -> DataFrame:
    """Where ``b`` is not true the time is a minute later: what leaves these rows out must do so below the watermark."""
    later = F.when(F.col("b"), F.col("ts")).otherwise(F.expr("ts + INTERVAL 1 MINUTE"))
    return rows.withColumn("ts", later).withColumn("known", F.coalesce("b", F.lit(False)))


def keys_left_out_above(rows: DataFrame) -> DataFrame:
    marked = ahead(rows).withWatermark("ts", "5 seconds")
    counts = marked.groupBy(F.window("ts", "10 seconds"), "known", "text").agg(F.count("*").alias("n"))
    return counts.where("known AND n > 0 AND upper(text) != 'AB'").select("window", "text", "n")


def pairs_left_out_above(rows: DataFrame) -> DataFrame:
    """What is not known of one side is null, in a key: no such row moves event time on Spark."""
    left = ahead(rows).withWatermark("ts", "5 seconds").selectExpr("ts", "i", "known", "unique AS one")
    right = ahead(rows).selectExpr("ts AS at", "if(b, i, null) AS j", "unique AS other")
    near = F.expr("i = j AND at >= ts AND at < ts + INTERVAL 9 SECONDS")
    return left.join(right.withWatermark("at", "5 seconds"), near).where("known AND one % 3 != 0")


def united_counts(rows: DataFrame) -> DataFrame:
    """Three operators of different kinds whose rows are united, some of them of a join with a table."""
    marked = rows.withWatermark("ts", "5 seconds")
    names = rows.sparkSession.createDataFrame([("a", 1), ("A", 2)], "text string, n bigint")
    counts = marked.groupBy(F.window("ts", "10 seconds"), "text").agg(F.count("*").alias("n"), F.sum("l").alias("l"))
    others = marked.groupBy(F.window("ts", "4 seconds"), "i").agg(F.max("text").alias("text"), F.max("l").alias("n"))
    first = marked.dropDuplicates(["ts", "text"]).select(F.window("ts", "5 seconds"), "text", "l", "i")
    known = counts.drop("n").join(names, "text").select("window.start", "text", F.col("n") + 1, "l")
    return known.union(others.select("window.end", "text", "n", "i")).unionByName(
        first.select(F.col("window.start").alias("start"), "text", F.col("l").alias("(n + 1)"), F.col("i").alias("l"))
    )


def windows_of_united_windows(rows: DataFrame) -> DataFrame:
    marked = rows.withWatermark("ts", "5 seconds")
    counts = marked.groupBy(F.window("ts", "10 seconds"), "text").agg(F.count("*").alias("n"))
    firsts = marked.where("b").groupBy(F.window("ts", "5 seconds"), F.lower("text").alias("text")).agg(F.max("i"))
    both = counts.select(F.window_time("window").alias("at"), "text", "n").union(
        firsts.select(F.window_time("window"), "text", "max(i)")
    )
    return both.groupBy(F.window("at", "20 seconds"), "text").agg(F.sum("n").alias("n"), F.count("*").alias("windows"))


def counts_of_counts(rows: DataFrame) -> DataFrame:
    """Grouped by the window that rows come with, sliding ones, also of united operators."""
    marked = rows.withWatermark("ts", "5 seconds")
    counts = marked.groupBy(F.window("ts", "10 seconds", "4 seconds"), "text").agg(F.count("*").alias("n"))
    others = marked.groupBy(F.window("ts", "10 seconds", "4 seconds"), "i").agg(F.max("l") % 7)
    both = counts.where("n > 0").select(F.col("window").alias("w"), "n").union(others.drop("i"))
    return both.groupBy("w").agg(F.sum("n"), F.count("*").alias("texts")).select("w.end", "sum(n)", "texts")


def of_known_texts(rows: DataFrame) -> DataFrame:
    """Joins with tables below an operator, between two of them and above the last."""
    spark = rows.sparkSession
    texts = spark.createDataFrame([("a", "x"), ("A", "x"), ("ab", "y"), ("ß", None)], "text string, kind string")
    kinds = spark.createDataFrame([("x", 1), ("y", 2), ("z", 3)], "kind string, number int")
    few = spark.createDataFrame([(1,), (2,), (3,), (4,)], "n bigint")
    marked = texts.join(rows, "text", "right").withWatermark("ts", "5 seconds")
    counts = marked.groupBy(F.window("ts", "10 seconds"), "kind", "i").agg(F.count("*").alias("n"))
    known = counts.join(few, "n", "left_semi").join(kinds, "kind", "left")
    again = known.groupBy(F.window(F.window_time("window"), "20 seconds"), "number").agg(F.sum("n").alias("n"))
    return again.join(few, "n", "left_anti").select("window.start", "number", "n")


def of_streams_with_watermarks(rows: DataFrame) -> DataFrame:
    """United streams, one of which is behind: what is late, and what closes, goes by the slowest."""
    ahead = rows.where("i > 0").withWatermark("ts", "2 seconds").select("ts", "text", "l")
    behind = rows.where("i <= 0").select((F.col("ts") - F.expr("INTERVAL 13 SECONDS")).alias("at"), "text", "i")
    middle = rows.where("b").withColumn("l", F.col("l") + 1).withWatermark("ts", "1 second")
    both = ahead.union(behind.withWatermark("at", "5 seconds")).union(middle.select("ts", "text", "l"))
    known = both.where("text != 'ab'").select(F.col("ts").alias("t"), F.upper("text").alias("text"), "l")
    return known.groupBy(F.window("t", "6 seconds"), "text").agg(F.count("*").alias("n"), F.sum("l"))


def in_order(rows: DataFrame) -> DataFrame:
    counts = rows.groupBy(F.upper("text").alias("text")).agg(F.count("*").alias("n"), F.sum("i"))
    return counts.orderBy(F.desc("n"), "text").where("n > 1")


def nested(rows: DataFrame) -> DataFrame:
    """Structs, arrays and maps, null and not, as values, in orders and in lists."""
    pair = F.struct("text", "i", F.array("l", F.lit(None)).alias("list"), F.create_map("text", "e").alias("map"))
    known = rows.withWatermark("ts", "5 seconds").where("text IS NOT NULL").withColumn("pair", F.when(F.col("b"), pair))
    return known.groupBy("day").agg(
        F.max_by("pair", "unique").alias("last"),
        F.min_by(F.struct("raw", "finite", "day", "local", "ts", "b"), F.struct("i", "wide", "unique")).alias("first"),
        F.max(F.struct("i", F.struct("text", "unique").alias("rest"))),
        F.min(F.when(F.col("b"), F.struct("e", "unique"))).alias("min"),
        F.expr("max(struct(finite, unique)) FILTER (WHERE i > 0)").alias("filtered"),
        F.collect_list(F.struct("i", "unique")),
        F.collect_set(F.struct("i", "text")),
        F.collect_list(F.array("i", "l")),
        F.expr("max_by(struct(i, text), unique, 3)").alias("three"),
        F.expr("min_by(text, struct(i, unique), 2)").alias("two"),
        F.expr("max_by(i, unique, 4) FILTER (WHERE b)").alias("four"),
    ).select("*", "last.list", F.col("first.ts").alias("t"), F.element_at("last.map", "a"))  # fmt: skip


def nested_kept(rows: DataFrame) -> DataFrame:
    """Structs and arrays that rows come with, and by which they are compared."""
    both = rows.select(F.struct("text", "i").alias("pair"), F.array("i", "i").alias("list"), F.col("ts"))
    return both.withWatermark("ts", "5 seconds").dropDuplicates(["pair", "list"]).select("pair.text", "list", "pair")


def nested_pairs(rows: DataFrame) -> DataFrame:
    left = rows.withWatermark("ts", "5 seconds").select("ts", F.struct("text", "unique").alias("one"), "i")
    right = (
        rows.where("b").selectExpr("ts AS at", "i AS j", "array(unique, l) AS other").withWatermark("at", "5 seconds")
    )
    return left.join(right, F.expr("i = j AND at >= ts AND at < ts + INTERVAL 3 SECONDS"))


def grouped_by_times(rows: DataFrame) -> DataFrame:
    """By event time itself, and windows of what that gives: a group ends where the watermark reaches it."""
    whole = rows.withColumn("ts", F.date_trunc("second", "ts")).withWatermark("ts", "5 seconds")
    best = whole.groupBy("text", F.col("ts").alias("at")).agg(F.max_by(F.struct("i", "unique"), "unique").alias("best"))
    known = best.where("at IS NOT NULL").select("at", "text", "best.i", "best.unique")
    return known.groupBy(F.window("at", "10 seconds"), "text").agg(F.sum("i"), F.max("unique"), F.count("*"))


def first_of_times(rows: DataFrame) -> DataFrame:
    known = F.coalesce(F.date_trunc("second", "ts"), F.lit(START))
    whole = rows.withColumn("ts", known).withWatermark("ts", "5 seconds")
    return whole.groupBy("ts").agg(F.sum("i").alias("i"), F.max("text"))


def on_windows(rows: DataFrame) -> DataFrame:
    """Two streams joined on windows that no operator has made, of which the event time is not passed on."""
    left = rows.withWatermark("ts", "5 seconds").select(F.window("ts", "6 seconds").alias("w"), "i", "unique")
    right = rows.where("b").select(F.expr("ts - INTERVAL 2 SECONDS AS t"), F.col("i").alias("j"), "text")
    right = right.withWatermark("t", "1 second").select("j", "text", F.window("t", "6 seconds"))
    return left.join(right, F.expr("w = window AND i = j")).select("w", "unique", "text")


def on_windows_outer(rows: DataFrame) -> DataFrame:
    left = rows.where("ts IS NOT NULL AND i IS NOT NULL").withWatermark("ts", "5 seconds")
    left = left.select("i", "unique", F.window("ts", "6 seconds", "3 seconds").alias("w"))
    right = rows.where("b AND ts IS NOT NULL").withWatermark("ts", "3 seconds")
    right = right.select(F.col("i").alias("j"), "text", F.window("ts", "6 seconds", "3 seconds"))
    return left.join(right, F.expr("w = window AND i = j"), "left").select("w.start", "unique", "text")


def of_several_watermarks(rows: DataFrame) -> DataFrame:
    """Two on one column, and one on another that is not passed on: the slowest counts."""
    both = rows.withColumn("other", F.expr("ts - INTERVAL 3 SECONDS")).withWatermark("other", "6 seconds")
    marked = (
        both.where("i > -4").withWatermark("ts", "1 second").select("ts", "text", "i").withWatermark("ts", "2 seconds")
    )
    return marked.groupBy(F.window("ts", "5 seconds"), "text").agg(F.count("*").alias("n"), F.sum("i"))


def joined_of_several_watermarks(rows: DataFrame) -> DataFrame:
    left = rows.withWatermark("ts", "9 seconds").select("ts", "i", "unique").withWatermark("ts", "3 seconds")
    right = rows.where("b").selectExpr("ts AS at", "i AS j", "text").withWatermark("at", "5 seconds")
    return left.join(right, F.expr("i = j AND at >= ts AND at < ts + INTERVAL 3 SECONDS"))


CASES = [
    (grouped_by_times, "append"),
    (first_of_times, "update"),
    (on_windows, "append"),
    (on_windows_outer, "append"),
    (nested, "update"),
    (nested_kept, "append"),
    (nested_pairs, "append"),
    (sums_and_means, "update"),
    (extremes_and_sets, "update"),
    (filters_and_arguments, "update"),
    (tumbling, "append"),
    (sliding_by_name, "update"),
    (local_times, "update"),
    (of_all_rows, "update"),
    (sessions, "append"),
    (sessions_of_own_gaps, "append"),
    (sessions_of_own_gaps, "complete"),
    (of_two_streams, "append"),
    (different_by_name, "update"),
    (in_order, "complete"),
    (different_whole, "append"),
    (keys_left_out_above, "append"),
    (pairs_left_out_above, "append"),
    (joined, "append"),
    (windows_of_windows, "append"),
    (united_counts, "append"),
    (of_streams_with_watermarks, "append"),
    (counts_of_counts, "append"),
    (of_known_texts, "append"),
    (windows_of_united_windows, "append"),
]


@pytest.mark.drawn(4)
@pytest.mark.parametrize(("ask", "mode"), CASES, ids=lambda each: getattr(each, "__name__", each))
def test_the_same_rows(spark: SparkSession, tmp_path: Path, ask: Callable[[DataFrame], DataFrame], mode: str) -> None:
    assert PlainQuery(spark, tmp_path, batches(rng()), ask, mode).check() > 3


@pytest.mark.parametrize("ask", [of_several_watermarks, joined_of_several_watermarks])
def test_the_slowest_of_several_watermarks_counts(
    spark: SparkSession, tmp_path: Path, ask: Callable[[DataFrame], DataFrame]
) -> None:
    """Spark refuses them, in a query's second batch, unless it is told to; then rows are late an epoch sooner: so none
    is here.
    """
    session = spark.newSession()
    session.conf.set("spark.sql.streaming.statefulOperator.allowMultiple", "false")
    step = timedelta(seconds=8)
    tables = [
        table.filter(pc.field("ts") > pa.scalar(START + step * (epoch - 1)))
        for epoch, table in enumerate(batches(rng(), step=step))
    ]
    assert PlainQuery(session, tmp_path, tables, ask).check() > 3


def test_days_are_of_24_hours_in_any_time_zone(spark: SparkSession, tmp_path: Path) -> None:
    """In a session with its own zone, in the night in which clocks go forward, and without ANSI rules."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    session.conf.set("spark.sql.ansi.enabled", "false")

    def ask(rows: DataFrame) -> DataFrame:
        days = rows.withWatermark("ts", "1 hour").groupBy(F.window("ts", "1 day"), F.hour("ts").alias("hour"))
        sums = days.agg(F.sum(F.col("l") * (1 << 22)), F.sum("wide").alias("wide"))  # which wraps
        return sums.withColumn("starts", F.date_format("window.start", "yyyy-MM-dd HH:mm"))

    tables = batches(rng(), step=timedelta(hours=11))
    assert PlainQuery(session, tmp_path, tables, ask).check() > 5


def test_keys_are_forgotten_when_spark_forgets_them(spark: SparkSession, tmp_path: Path) -> None:
    """A key comes once in an epoch: of several rows Spark takes any, and how long it remembers depends on which."""
    keys = pa.array(range(40), pa.int32())
    tables = [table.set_column(4, "i", keys) for table in batches(rng(), step=timedelta(seconds=15))]

    def ask(rows: DataFrame) -> DataFrame:
        marked = rows.where("ts IS NOT NULL").withWatermark("ts", "20 seconds")
        return marked.dropDuplicatesWithinWatermark(["i"]).select("ts", "i", "text")

    assert PlainQuery(spark, tmp_path, tables, ask, "update").check() > 40
