"""What ``tailrace.writeStream`` does with PySpark's calls, and when it leaves a query to Spark."""

from __future__ import annotations

import logging
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

import tailrace as tr
from support.queries.simple import SCHEMA, batches
from tailrace.spark.query.query import StreamingQuery as OnTailrace
from tailrace.testing import ScriptedSource


@pytest.fixture
def rows(spark: SparkSession, tmp_path: Path) -> DataFrame:
    source = ScriptedSource(tmp_path / "in", SCHEMA)
    source.add(batches(2))
    return source.stream(spark)


def finished(query: Any) -> Any:
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return query


def test_what_tailrace_refuses_runs_on_spark(
    rows: DataFrame, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    found: list[list[Any]] = []
    counts = rows.groupBy("k").agg(F.first("v").alias("v"))
    writer = tr.writeStream(counts).outputMode("update").foreachBatch(lambda batch, _: found.append(batch.collect()))
    writer = writer.option("memory", "64MB").option("checkpointLocation", str(tmp_path / "check"))
    with caplog.at_level(logging.WARNING, logger="tailrace"):
        query = finished(writer.trigger(availableNow=True).start())
    assert len(found) == 2 and found[0]
    assert "runs on Spark, and not on Tailrace: first(v): it depends on the order" in caplog.text
    assert f"(at {__file__}:" in caplog.text
    query.explain()
    shown = capsys.readouterr().out
    assert (
        shown.startswith("On Spark, and not on Tailrace: first(v)")
        and f"(at {__file__}:" in shown
        and "== Physical Plan ==" in shown
    )


def test_a_query_on_tailrace_says_what_its_columns_are(
    rows: DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sums = rows.groupBy((F.col("k") % 2).alias("odd")).agg(F.sum(F.col("v") + 1).alias("total")).where("total > 0")
    location = {"checkpointLocation": str(tmp_path / "check")}
    query = tr.writeStream(sums, fallback=False).trigger(availableNow=True).start(
        str(tmp_path / "out"), format="parquet", outputMode="update", **location
    )  # fmt: skip
    assert isinstance(finished(query), OnTailrace)
    query.explain()
    shown = capsys.readouterr().out
    assert "c0 = (k % " in shown and "a0 = sum((v + " in shown and "Filter (total > " in shown
    assert rows.sparkSession.read.parquet(str(tmp_path / "out")).columns[:2] == ["odd", "total"]


def test_it_says_who_would_run_a_query_and_starts_nothing(rows: DataFrame, capsys: pytest.CaptureFixture[str]) -> None:
    def said(frame: DataFrame, **options: str) -> str:
        tr.writeStream(frame).outputMode("update").options(**options).explain()
        return capsys.readouterr().out

    assert said(rows.groupBy("k").agg(F.last("v"))).startswith("On Spark, and not on Tailrace: last(v): ")
    assert "a0 = sum(v)" in said(rows.groupBy("k").agg(F.sum("v")))
    once = rows.withWatermark("ts", "5 seconds").dropDuplicatesWithinWatermark(["k"])
    assert "watermark rule spark" in said(once), "else it would forget keys earlier than Spark, and give them again"
    assert "watermark rule tailrace" in said(once, watermark="tailrace")
    assert rows.sparkSession.streams.active == []


def test_a_query_without_a_checkpoint_has_one_as_long_as_it_lives(rows: DataFrame) -> None:
    sums = rows.groupBy("k").agg(F.sum("v"))
    writer = tr.writeStream(sums, fallback=False).outputMode("update")
    query: Any = writer.foreachBatch(lambda *_: None).trigger(availableNow=True).start()
    try:
        folder = Path(query._jsq.streamingQuery().resolvedCheckpointRoot().removeprefix("file:"))
        assert folder.is_dir()
        query.awaitTermination()
    finally:
        query.stop()
    assert query.lastProgress.numInputRows == 50 and not folder.exists()
    with pytest.raises(tr.AnalysisError, match="needs a checkpointLocation"):
        tr.writeStream(sums, fallback=False).outputMode("update").format("parquet").start("/nowhere")


def test_a_sessions_checkpoints_are_by_name(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    def start(function: Any, name: str = "sums") -> Any:
        writer = tr.writeStream(rows.groupBy("k").agg(function("v"))).outputMode("update").format("noop")
        return finished(writer.queryName(name).trigger(availableNow=True).start())

    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "all"))
    try:
        first = start(F.max)
        assert first.recentProgress and not start(F.max).recentProgress, "the second has nothing left to do"
        with pytest.raises(tr.AnalysisError, match=r"last\(v\).*not go on with its state"):
            start(F.last)
        assert isinstance(start(F.max, "others"), OnTailrace)
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert sorted(each.name for each in (tmp_path / "all").iterdir()) == ["others", "sums"]


def test_without_a_fallback_the_reason_is_raised(rows: DataFrame, tmp_path: Path) -> None:
    def refused(frame: DataFrame, message: str, **calls: Any) -> None:
        writer = tr.writeStream(frame, fallback=False).option("checkpointLocation", str(tmp_path / "check"))
        for name, value in calls.items():
            getattr(writer, name)(value)
        with pytest.raises(tr.AnalysisError, match=message):
            writer.start()

    counts = rows.groupBy("k").count()
    refused(counts, "clusterBy: Tailrace writes files", outputMode="update", clusterBy="k")
    refused(counts, "format 'hudi'", outputMode="update", format="hudi")
    refused(counts, "append", format="console", outputMode="append")
    with pytest.raises(tr.AnalysisError, match="toTable"):
        tr.writeStream(counts, fallback=False).toTable("counts")


def test_rows_one_by_one(rows: DataFrame, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()

    def save(row: Any) -> None:  # in a task
        (folder / f"{row.k} {row.count}").touch()

    writer = tr.writeStream(rows.groupBy("k").count(), fallback=False).outputMode("update").foreach(save)
    finished(writer.option("checkpointLocation", str(tmp_path / "check")).trigger(once=True).start())
    assert len({each.name.split()[0] for each in folder.iterdir()}) == 8


@pytest.mark.parametrize("trigger", [{"realTime": "5 minutes"}, {"continuous": "1 second"}], ids=str)
def test_triggers_without_epochs_are_sparks(
    rows: DataFrame, tmp_path: Path, caplog: pytest.LogCaptureFixture, trigger: dict[str, str]
) -> None:
    """That Spark refuses the query as well is told by Spark."""
    (name,) = trigger
    if name == "realTime" and name not in signature(DataStreamWriter.trigger).parameters:
        pytest.skip("this PySpark has no real-time mode")

    def start(fallback: bool) -> None:
        writer = tr.writeStream(rows.groupBy("k").count(), fallback).outputMode("update").format("noop")
        writer.option("checkpointLocation", str(tmp_path / "check")).trigger(**trigger).start()

    with pytest.raises(tr.AnalysisError, match=f"trigger: {name}=.*: use processingTime='0 seconds'"):
        start(fallback=False)
    with caplog.at_level(logging.WARNING, logger="tailrace"), pytest.raises(PySparkException):
        start(fallback=True)
    assert f"runs on Spark, and not on Tailrace: trigger: {name}=" in caplog.text


def test_spark_does_not_take_over_state_of_tailrace(rows: DataFrame, tmp_path: Path) -> None:
    def start(function: Any) -> Any:
        writer = tr.writeStream(rows.groupBy("k").agg(function("v"))).outputMode("update").format("noop")
        writer = writer.option("checkpointLocation", str(tmp_path / "check")).trigger(availableNow=True)
        return finished(writer.start())

    start(F.max)
    with pytest.raises(tr.AnalysisError, match=r"last\(v\).*not go on with its state, which is Tailrace's, in /"):
        start(F.last)


def test_tailrace_does_not_take_over_state_of_spark(rows: DataFrame, tmp_path: Path) -> None:
    location = str(tmp_path / "check")
    writer = rows.groupBy("k").count().writeStream.outputMode("update").format("noop")
    finished(writer.option("checkpointLocation", location).trigger(availableNow=True).start())
    again = tr.writeStream(rows.groupBy("k").count()).outputMode("update").format("noop")
    with pytest.raises(tr.CheckpointError, match="There is no state for the epochs that Spark has committed"):
        again.option("checkpointLocation", location).start()


def test_a_whole_session_and_sql(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    counts = rows.groupBy("k").count()
    rows.createOrReplaceTempView("enabled_rows")
    text = "SELECT k, count(*) FROM enabled_rows GROUP BY k"
    assert isinstance(tr.sql(spark, text), type(tr.writeStream(counts)))
    for _ in range(2):
        tr.enable(spark)
        try:
            writer = counts.writeStream.outputMode("update").format("noop")
            query = writer.option("checkpointLocation", str(tmp_path / "check")).trigger(availableNow=True).start()
            assert isinstance(finished(query), OnTailrace)
            assert type(spark.newSession().readStream.format("rate").load().writeStream) is DataStreamWriter
        finally:
            tr.disable(spark)
    assert type(counts.writeStream) is DataStreamWriter


def test_wrong_calls_fail_as_on_spark(spark: SparkSession, rows: DataFrame) -> None:
    counts = rows.groupBy("k").count()
    for call in (
        lambda make: make(counts).outputMode(7),
        lambda make: make(counts).trigger(processingTime="soon", once=True),
        lambda make: make(counts).outputMode("append").format("noop").start(),
        lambda make: make(rows.join(rows.select("k"), "k", "left_anti")).format("noop").start(),
        lambda make: make(rows.join(rows.select("k"), "k", "left")).format("noop").start(),
        lambda make: make(counts.join(rows, "k")).outputMode("update").format("noop").start(),
        lambda make: make(counts.limit(3)).outputMode("update").format("noop").start(),
        lambda make: make(counts.orderBy("k")).outputMode("update").format("noop").start(),
        lambda make: make(spark.range(3)).start(),
    ):
        errors = []
        for make in (tr.writeStream, lambda frame: frame.writeStream):
            with pytest.raises(PySparkException) as caught:
                call(make)
            errors.append((type(caught.value), caught.value.getCondition()))
        assert errors[0] == errors[1]
