"""Stateless work of Spark behind operators: the same rows as the same work on the oracle's rows, in the same epochs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from support.queries.engines import tailrace_stream
from support.queries.simple import ROLLING, SCHEMA, SECOND, WINDOWED, batches
from tailrace.testing import ScriptedSource, expected


def dear(frame: DataFrame) -> DataFrame:
    """Chooses, renames and computes."""
    return frame.where("n > 2").select(F.col("k").alias("key"), "window.start", (F.col("total") * 2).alias("twice"))


def dear_rows(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((str(r["k"]), r["window"]["start"], r["total"] * 2) for r in rows if r["n"] > 2)


def run(stream: Any, path: Path, mode: str, save: Any) -> Any:
    writer = stream.writeStream.outputMode(mode).foreachBatch(save)
    query = writer.trigger(availableNow=True).option("checkpointLocation", str(path / "check")).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return query


def test_work_behind_the_last_operator(spark: SparkSession, tmp_path: Path) -> None:
    source = ScriptedSource(tmp_path / "in", SCHEMA)
    every, found = batches(6), {}

    def save(batch: DataFrame, epoch: int) -> None:
        found[epoch] = sorted((str(r["key"]), r["start"], r["twice"]) for r in batch.toArrow().to_pylist())

    for part in (every[:3], every[3:]):  # with a restart
        source.add(part)
        query = run(tailrace_stream(source.stream(spark), WINDOWED).transform(dear), tmp_path, "append", save)
    wanted = [dear_rows(epoch.rows.to_pylist()) for epoch in expected(spark, WINDOWED, every)]
    assert any(wanted)
    assert [found[epoch] for epoch in range(len(wanted))] == wanted
    assert query.lastProgress.asDict()["sink"]["numOutputRows"] == -1


def test_outputs_that_stay_in_the_servers(spark: SparkSession, tmp_path: Path) -> None:
    """Larger than what comes with the servers' answers; one DataFrame stands for all epochs of a file sink."""
    keys, epochs = 25_000, 4
    table = pa.table(
        [pa.array(range(keys)), pa.array([1000 * SECOND] * keys, SCHEMA.field("ts").type), pa.array(range(keys))],
        schema=SCHEMA,
    )
    source = ScriptedSource(tmp_path / "in", SCHEMA)
    source.add((table,) * epochs)
    counts = tailrace_stream(source.stream(spark), ROLLING).transform(lambda frame: frame.where("k % 1000 = 7"))
    writer = counts.writeStream.outputMode("update").option("checkpointLocation", str(tmp_path / "check"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
    try:
        query.awaitTermination()
    finally:
        query.stop()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted((r["k"], r["n"]) for r in rows) == sorted(
        (key, epoch + 1) for key in range(7, keys, 1000) for epoch in range(epochs)
    )


def test_large_outputs_behind_work_between_operators(spark: SparkSession, tmp_path: Path) -> None:
    """The sink's job is no longer than the epoch's: the epoch's thread brings rows from operator to operator."""
    keys, epochs = 25_000, 7
    source = ScriptedSource(tmp_path / "in", SCHEMA)
    numbers, times = pa.array(range(keys)), SCHEMA.field("ts").type
    source.add(
        tuple(
            pa.table([numbers, pa.array([(1000 + 10 * epoch) * SECOND] * keys, times), numbers], schema=SCHEMA)
            for epoch in range(epochs)
        )
    )
    marked = tr.stream(source.stream(spark)).withWatermark("ts", "0 seconds")
    counts = marked.groupBy(tr.window("ts", "10 seconds"), "k").agg(tr.count().alias("n"))
    totals = counts.transform(lambda rows: rows.select("k", (F.col("n") * 2).alias("n"))).groupBy("k").agg(tr.sum("n"))
    writer = totals.writeStream.outputMode("update").option("checkpointLocation", str(tmp_path / "check"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
    try:
        query.awaitTermination()
    finally:
        query.stop()
    found = (
        spark.read.parquet(str(tmp_path / "out")).groupBy("k").agg(F.max("sum(n)").alias("n"), F.count("*").alias("c"))
    )
    assert {(r["n"], r["c"]) for r in found.collect()} == {(2 * (epochs - 1), epochs - 1)}
    assert found.count() == keys


def test_sorted_and_limited_groups_of_all(spark: SparkSession, tmp_path: Path) -> None:
    """In output mode complete an epoch's rows are all there are, so that their order and their first mean something."""
    question = replace(ROLLING, output_mode="complete")
    source = ScriptedSource(tmp_path / "in", SCHEMA)
    every, found = batches(4), {}
    source.add(every)
    first = tailrace_stream(source.stream(spark), question).transform(lambda rows: rows.orderBy("total").limit(3))

    def save(batch: DataFrame, epoch: int) -> None:
        found[epoch] = [(row["total"], row["k"]) for row in batch.collect()]

    run(first, tmp_path, "complete", save)
    groups = [epoch.rows.select(["total", "k"]).to_pylist() for epoch in expected(spark, question, every)]
    wanted = [sorted(map(tuple, map(dict.values, rows)), key=lambda row: row[0])[:3] for rows in groups]
    assert [found[epoch] for epoch in range(4)] == wanted


def plain_windows(frame: DataFrame) -> DataFrame:
    """Windows as plain columns; their last moments stay the event time."""
    return frame.select("k", "n", F.window_time("window").alias("at"), F.col("window.start").alias("start"))


def test_work_between_two_operators(spark: SparkSession, tmp_path: Path) -> None:
    source = ScriptedSource(tmp_path / "in", SCHEMA)
    every, found = batches(10), {}

    def save(batch: DataFrame, epoch: int) -> None:
        found[epoch] = sorted((r["window"]["start"], str(r["k"]), r["n"]) for r in batch.toArrow().to_pylist())

    def some(frame: DataFrame) -> DataFrame:
        return plain_windows(frame.where("n > 2")).withColumn("n", F.col("n") * 10)

    for part in (every[:4], every[4:]):  # with a restart
        source.add(part)
        counts = tailrace_stream(source.stream(spark), WINDOWED).transform(some)
        longer = counts.groupBy(tr.window("at", "20 seconds"), "k").agg(tr.sum("n").alias("n"))
        run(longer, tmp_path, "append", save)
    groups: dict[tuple[int, str], int] = defaultdict(int)
    for number, epoch in enumerate(expected(spark, WINDOWED, every)):
        for row in epoch.rows.to_pylist():
            if row["n"] > 2:
                time = int(row["window"]["end"].timestamp()) - 1
                groups[time - time % 20, str(row["k"])] += row["n"] * 10
        closed = -1 if epoch.closing_watermark is None else epoch.closing_watermark // SECOND
        done = sorted(key for key in groups if key[0] + 20 <= closed)
        rows = [(datetime.fromtimestamp(start, UTC), k, groups.pop((start, k))) for start, k in done]
        assert found[number] == rows, f"epoch {number}"
    assert any(found.values())


def test_a_join_of_what_operators_give(spark: SparkSession, tmp_path: Path) -> None:
    """Of each window the keys with the most rows: counts joined with their maximum, as NEXMark's query 5 does."""
    source = ScriptedSource(tmp_path / "in", SCHEMA)
    every, found = batches(8), set()

    def save(batch: DataFrame, epoch: int) -> None:
        rows = [(r["start"], str(r["k"]), r["n"]) for r in batch.toArrow().to_pylist()]
        assert found.isdisjoint(rows), "a row was emitted twice"
        found.update(rows)

    def most(frame: DataFrame) -> DataFrame:
        return frame.select(F.window_time("window").alias("at"), F.col("window.start").alias("start"), "best")

    for part in (every[:4], every[4:]):  # with a restart
        source.add(part)
        counts = tailrace_stream(source.stream(spark), WINDOWED)
        best = counts.groupBy("window").agg(tr.max("n").alias("best")).transform(most)
        named = counts.transform(lambda frame: plain_windows(frame).withColumnRenamed("at", "time"))
        pairs = named.join(best, "start", within=("0 seconds", "0 seconds"))
        run(pairs.transform(lambda frame: frame.where("n = best")), tmp_path, "append", save)
    wanted = set()
    for epoch in expected(spark, WINDOWED, every):
        rows = epoch.rows.to_pylist()
        best_of = {r["window"]["start"]: max(o["n"] for o in rows if o["window"] == r["window"]) for r in rows}
        wanted |= {(r["window"]["start"], str(r["k"]), r["n"]) for r in rows if r["n"] == best_of[r["window"]["start"]]}
    assert wanted and found == wanted


def test_a_join_with_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """One side is read by tasks of the streaming plan, the other one comes from an operator, in one epoch."""
    source = ScriptedSource(tmp_path / "in", SCHEMA)
    every, found = batches(6), []

    def save(batch: DataFrame, epoch: int) -> None:
        found.extend((r["v"], r["start"], r["n"]) for r in batch.toArrow().to_pylist())

    source.add(every)
    rows = source.stream(spark)
    counts = tailrace_stream(rows, WINDOWED).transform(plain_windows)
    events = tr.stream(rows.where("v % 3 = 0")).withWatermark("ts", "5 seconds")
    run(counts.join(events, "k", within=("-3 seconds", "0 seconds")), tmp_path, "append", save)
    wanted = []
    made = [row for epoch in expected(spark, WINDOWED, every) for row in epoch.rows.to_pylist()]
    for event in (row for table in every for row in table.to_pylist() if row["v"] % 3 == 0):
        for row in made:
            apart = event["ts"] - (row["window"]["end"] - timedelta(microseconds=1))
            if event["k"] is not None and event["k"] == row["k"] and timedelta(seconds=-3) <= apart <= timedelta(0):
                wanted.append((event["v"], row["window"]["start"], row["n"]))
    assert wanted and sorted(found) == sorted(wanted)


def test_what_a_function_may_not_do(spark: SparkSession, tmp_path: Path) -> None:
    counts = tailrace_stream(ScriptedSource(tmp_path / "in", SCHEMA).stream(spark), WINDOWED)
    with pytest.raises(tr.AnalysisError, match=r"transform: .*nothing"):
        counts.transform(lambda frame: frame.select("nothing"))
    with pytest.raises(tr.AnalysisError, match="must give a DataFrame, but gave int"):
        counts.transform(lambda frame: frame.count())
    with pytest.raises(tr.AnalysisError, match="nothing that streams"):
        counts.transform(lambda frame: counts.source.source)


def test_explain_shows_the_work(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tailrace_stream(ScriptedSource(tmp_path / "in", SCHEMA).stream(spark), WINDOWED).transform(dear).explain()
    lines = capsys.readouterr().out.splitlines()
    assert lines.index("+- Spark") < next(n for n, line in enumerate(lines) if "Aggregate" in line)
