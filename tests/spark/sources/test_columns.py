"""PySpark's functions and Columns in Tailrace's own API give the rows of the same query on Spark, in the same epochs.

A question is asked of both in the same words wherever they are the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from support.queries.plain import SCHEMA, OwnQuery, batches, rows_of
from tailrace.testing import ScriptedSource


def rng() -> random.Random:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


def grouped(rows: Any) -> Any:
    """Keys and arguments that are expressions, some of a name that a column has already; aggregates of aggregates."""
    return rows.groupBy(F.upper("text").alias("text"), (F.col("i") % 2), "b").agg(
        F.count("*").alias("n"),
        F.max("text").alias("largest"),
        F.sum(F.col("l") - F.col("i")),
        (F.max("finite") - F.min("finite")).alias("spread"),
        F.expr("count(*) FILTER (WHERE b)").alias("where b"),
        F.concat(F.upper("text"), F.lit("/"), F.sum("i").cast("string")).alias("shown"),
        F.avg("e"),
    )


def windowed(rows: Any) -> Any:
    """A window of Spark's under another name; an event time whose name a key takes."""
    days = F.date_trunc("minute", "ts").alias("ts")
    marked = rows.withWatermark("ts", "5 seconds").groupBy(days, F.window("ts", "10 seconds", "4 seconds").alias("W"))
    return marked.agg(F.sum("i"), (F.sum("l") / F.count("l")).alias("mean"), F.collect_list("text"))


def sessions(rows: Any) -> Any:
    gap = F.when(F.col("i") > 3, "20 seconds").otherwise("3 seconds")
    visits = rows.withWatermark("ts", "4 seconds").groupBy(F.session_window("ts", gap).alias("visit"), F.lower("text"))
    return visits.agg(F.count("*").alias("n"), F.max(F.length("text")))


def mixed(rows: Any) -> Any:
    groups = rows.withWatermark("ts", "5 seconds").groupBy(F.window("ts", "10 seconds"), F.lower("text").alias("low"))
    return groups.agg(F.sum("l").alias("sum"), F.max(F.col("i") * 2), F.count("*").alias("n"))


def mixed_of_ours(rows: Any) -> Any:
    groups = rows.withWatermark("ts", "5 seconds").groupBy(tr.window("ts", "10 seconds"), F.lower("text").alias("low"))
    return groups.agg(tr.sum("l").alias("sum"), tr.max(F.col("i") * 2), F.count("*").alias("n"))


def chained(rows: Any) -> Any:
    """Work before, between and behind operators; windows of windows, below which something else is computed."""
    marked = rows.withWatermark("ts", "5 seconds").withColumnRenamed("ts", "At").where("i > -5").drop("raw", "wide")
    named = marked.withColumn("low", F.lower("text")).select("At", "low", "i", (F.col("l") % 1000).alias("l"))
    counts = named.groupBy(F.window("At", "10 seconds"), "low").agg(F.count("*").alias("n"), F.sum("l").alias("l"))
    more = counts.where("n > 0").alias("c").withColumn("name", F.upper("c.low"))
    longer = more.groupBy(F.window("window", "20 seconds"), F.concat("name", F.lit("!")).alias("name"))
    sums = longer.agg(F.sum("n").alias("n"), F.max(F.col("l") + 1).alias("l"), (F.min("n") * 2).alias("least"))
    return (
        sums.filter(F.col("n") > 0).selectExpr("name", "window.end AS end", "l", "least").withColumns({"x": F.lit(1)})
    )


def united(rows: Any) -> Any:
    """Streams united before an operator, and what two operators make, behind them."""
    both = rows.where("b").union(rows.where("NOT b")).withWatermark("ts", "5 seconds")
    counts = both.groupBy(F.window("ts", "10 seconds"), "i").agg(F.count("*").alias("n"))
    return counts.unionByName(counts.select("i", "window", F.lit(None).cast("bigint").alias("n")))


def same_windows(rows: Any) -> Any:
    """Windows that rows come with, behind work that passes them on."""
    counts = rows.withWatermark("ts", "5 seconds").groupBy(F.window("ts", "10 seconds", "4 seconds"), "text").count()
    named = counts.withColumnRenamed("window", "w").groupBy("w", F.lower("text").alias("text"))
    return named.agg(F.sum("count"), F.avg("count").alias("mean"))


def first_of_each(rows: Any) -> Any:
    marked = rows.where("ts IS NOT NULL").withWatermark("ts", "20 seconds").select("ts", "i", "unique")
    return marked.dropDuplicatesWithinWatermark(["unique"]).withColumn("unique", F.col("unique") + 1)


def first_of_each_of_ours(rows: Any) -> Any:
    """Keys and event time that are expressions; the row stays as it was."""
    whole = rows.where("ts IS NOT NULL").select("ts", "i", "unique").withWatermark(F.col("ts"), "20 seconds")
    kept = whole.dropDuplicatesWithinWatermark([(F.col("unique") * 2).alias("unique")])
    return kept.withColumn("unique", F.col("unique") + 1)


def pairs(rows: Any) -> Any:
    """Equal expressions, made on either side."""
    left = rows.where("b").withWatermark("ts", "5 seconds").select("ts", F.lower("text").alias("key"), "unique")
    right = rows.withWatermark("ts", "5 seconds").select(F.col("ts").alias("at"), F.lower("text").alias("other"), "i")
    near = "key = r.other AND at >= ts AND at <= ts + INTERVAL 6 SECONDS"
    return left.join(right.alias("r"), F.expr(near)).select("key", "ts", "unique", "at", "i")


def pairs_of_ours(rows: Any) -> Any:
    left = rows.where("b").select("ts", "text", "unique").withWatermark("ts", "5 seconds")
    right = rows.select(F.col("ts").alias("at"), "i", "text").withWatermark(F.col("at"), "5 seconds")
    found = left.join(right, F.lower("text").alias("text"), within=("0 seconds", "6 seconds"))
    return found.withColumnRenamed("text", "key")


CASES: list[tuple[Callable[[Any], Any], Callable[[Any], Any] | None, str]] = [
    (grouped, None, "update"),
    (windowed, None, "append"),
    (sessions, None, "append"),
    (mixed, mixed_of_ours, "append"),
    (chained, None, "append"),
    (united, None, "append"),
    (first_of_each, first_of_each_of_ours, "append"),
    (pairs, pairs_of_ours, "append"),
    (same_windows, None, "append"),
]


@pytest.mark.drawn(3)
@pytest.mark.parametrize(("ask", "ours", "mode"), CASES, ids=lambda each: getattr(each, "__name__", each))
def test_the_same_rows(
    spark: SparkSession, tmp_path: Path, ask: Callable[[Any], Any], ours: Callable[[Any], Any] | None, mode: str
) -> None:
    assert OwnQuery(spark, tmp_path, batches(rng()), ask, mode, ours).check() > 5


def test_a_choice_of_columns_is_no_work(spark: SparkSession, tmp_path: Path) -> None:
    """Between two operators servers exchange the rows: only what computes, renames or leaves rows out goes by Spark."""
    rows = tr.stream(ScriptedSource(tmp_path / "in", SCHEMA).stream(spark)).withWatermark("ts", "1 second")
    counts = rows.groupBy(F.window("ts", "1 minute"), "text", "i").agg(F.count("*").alias("n"), F.max("l").alias("l"))
    chosen = counts.drop("l").select("n", "text", F.col("window"))
    for made in (
        chosen.groupBy("window").agg(F.max("n")),
        chosen.groupBy(F.window("window", "1 hour"), "text").count(),
    ):
        assert made.relation.source is counts.relation
    assert [field.name for field in chosen.groupBy("window").topN(1, "n").relation.columns] == ["n", "text"]
    assert chosen.groupBy("window").topN(1, F.abs("n")).relation.order == (("abs(n)", False),)
    with pytest.raises(tr.AnalysisError, match="`l` cannot be resolved"):
        chosen.groupBy("window").topN(1, F.abs("l"))
    for changed in (
        chosen.where("n > 1").drop("text"),
        chosen.withColumnRenamed("n", "m"),
        chosen.withColumn("n", F.col("n") + 1),
        chosen.select("n", "text"),
    ):
        assert (
            changed.groupBy("window" if "window" in changed.columns else "n").count().relation.source is changed.source
        )


def test_a_restart_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """Expressions are analysed anew, and what is kept is known by the same names."""
    source, every, found = ScriptedSource(tmp_path / "in", SCHEMA), batches(rng(), count=6), []

    def save(batch: DataFrame, epoch: int) -> None:
        found.extend(rows_of(batch)[1:])

    for part in (every[:3], every[3:]):
        source.add(part)
        writer = chained(tr.stream(source.stream(spark))).writeStream.option(
            "checkpointLocation", str(tmp_path / "check")
        )
        query = writer.foreachBatch(save).trigger(availableNow=True).start()
        query.awaitTermination()
        query.stop()
    once = OwnQuery(spark, tmp_path / "once", every, chained).on_tailrace(watermark="tailrace")
    assert len(found) > 5
    assert sorted(map(repr, found)) == sorted(repr(row) for rows in once.values() for row in rows[1:])


def test_groups_of_other_operators(spark: SparkSession, tmp_path: Path) -> None:
    """What is no aggregation gets the stream with a column for each expression, in the place of one of its name."""
    from_spark = spark.readStream.schema("k string, v int, ts timestamp").parquet(str(tmp_path))
    rows = tr.stream(from_spark).withWatermark("ts", "1 second")
    best = rows.groupBy(F.window("ts", "1 minute"), F.lower("k").alias("k"), F.col("V") % 2).topN(2, "v")
    assert best.columns == ["window", "k", "(V % 2)", "v", "ts", "rank"]
    assert rows.groupBy("k").topN(1, [F.asc(F.abs("v")), "ts"]).relation.order == (("abs(v)", True), ("ts", False))
    assert rows.groupBy(tr.window(F.col("ts"), "1 day"), "k").avg(F.col("v") * 2).columns[2] == "avg((v * 2))"
    read = rows.groupBy("k").process(print, "k string", state="n int", columns=[F.upper("k").alias("up"), "v"]).relation
    assert [field.name for field in read.columns] == ["up", "v"]
    named = spark.createDataFrame([("a", 1)], "name string, number int")
    joined = rows.join(named, F.lower("k") == F.col("name"), "left")
    assert joined.columns == ["k", "v", "ts", "name", "number"]
    table = tr.table.redis("redis://localhost", key="name", schema="size bigint")
    assert rows.join(table, F.lower("k").alias("name")).columns == ["name", "k", "v", "ts", "size"]
    counts = rows.groupBy("k", F.col("v")).agg(F.count("*"))
    assert counts.columns == ["k", "v", "count(1)"]
    assert counts.source.source is from_spark, "columns as they are need no work"


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda rows: rows.groupBy(F.lower("text"), F.col("nothing")), ["groupBy", "`nothing`"]),
        (lambda rows: rows.agg(F.sum("l"), F.first("text")), ["agg, argument 2", "first(text)", "order in which"]),
        (lambda rows: rows.agg(F.skewness("l")), ["argument 1", "skewness(l)", "no aggregate function"]),
        (lambda rows: rows.agg(F.lower("text")), ["agg", "GROUP BY"]),
        (lambda rows: rows.agg(F.sum("l") * F.rand()), ["agg(", "rand", "replay"]),
        (lambda rows: rows.groupBy(F.window("ts", "1 day"), F.window("local", "1 day")), ["window"]),
        (lambda rows: rows.groupBy(F.col("d") * 2).count(), ["(d * ", "double", "cannot be a group column"]),
        (lambda rows: rows.agg(tr.sum(F.lower("text"))), ["sum(lower(text))", "needs a number"]),
        (lambda rows: rows.select(F.col("none") + 1), ["select(", "`none`"]),
        (lambda rows: rows.withWatermark("ts", "1 day").select("i"), ["select(i)", "watermark is on 'ts'"]),
        (lambda rows: rows.union(rows.withWatermark("ts", "1 day")), ["union", "behind union"]),
        (lambda rows: rows.union(rows.groupBy("i").count()), ["union", "an operator has made"]),
        (lambda rows: rows.groupBy("i").count().where(F.current_timestamp() > "2020"), ["where(", "replay"]),
        (lambda rows: rows.join(rows, F.col("x.i") == F.col("y.i")), ["join: on", "`x`.`i`", "writeStream"]),
        (lambda rows: rows.join(rows, F.col("i") == F.col("l")), ["(i = l)", "within="]),
        (lambda rows: rows.groupBy("i").topN(1, F.desc_nulls_first("l")), ["topN: orderBy", "null is the smallest"]),
    ],
    ids=range(16),
)
def test_what_is_refused_is_named_with_its_place(
    spark: SparkSession, tmp_path: Path, ask: Callable[[Any], Any], words: list[str]
) -> None:
    source = ScriptedSource(tmp_path / "in", SCHEMA)
    with pytest.raises(tr.AnalysisError) as caught:
        ask(tr.stream(source.stream(spark)))
    for word in words:
        assert word in str(caught.value)
