"""Queries without a state run without state servers: each row once in every exact sink, over restarts and replays."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from support.queries.passing import in_parts, ordered, passed
from support.queries.simple import ROLLING, Scripted, batches
from tailrace.errors import AnalysisError, CheckpointError


@pytest.mark.parametrize("format_", ["delta", "iceberg", "parquet"])
def test_rows_are_in_files_and_tables_of_a_lake_once(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    lake = {"catalog.type": "sql", "catalog.uri": f"sqlite:///{tmp_path}/lake.db", "catalog.warehouse": str(tmp_path)}
    query, place = Scripted(spark, tmp_path), str(tmp_path / "out")
    if format_ == "iceberg":
        catalog = load_catalog("default", **{name.partition(".")[2]: value for name, value in lake.items()})
        catalog.create_namespace("shop")
        in_parts(query, lambda writer: writer.format("iceberg").options(**lake).toTable("shop.passed"))
        found = catalog.load_table("shop.passed").scan().to_arrow()
    else:
        delta = format_ == "delta"
        in_parts(
            query,
            lambda writer: (
                writer.format("delta").toTable(f"delta.`{place}`") if delta else writer.format(format_).start(place)
            ),
        )
        found = (
            DeltaTable(place).to_pyarrow_table() if format_ == "delta" else spark.read.parquet(place).toArrow()
        ).cast(found_schema(format_))
    rows = [(row["k"], row["ts"], row["v"]) for row in found.to_pylist()]
    assert ordered(rows) == ordered(passed(query.fed))


def found_schema(format_: str) -> pa.Schema:
    schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])
    return schema if format_ == "delta" else schema.append(pa.field("tailrace_epoch", pa.int32()))


def test_a_streams_own_steps_its_plan_and_its_progress(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query, seen = Scripted(spark, tmp_path), {}
    query.feed(batches(3))

    def save(rows: DataFrame, epoch: int) -> None:
        seen[epoch] = [tuple(row) for row in rows.select("v").collect()]

    stream = tr.stream(query.frame()).where("v % 3 <> 0").select("ts", "v")
    stream.explain()
    assert "no state servers" in capsys.readouterr().out
    started = stream.writeStream.foreachBatch(save).option("checkpointLocation", str(query.checkpoint))
    started = started.trigger(availableNow=True).queryName("passing").start()
    started.awaitTermination()
    started.explain()
    told = capsys.readouterr().out
    assert "Sink foreachBatch save of query 'passing'" in told
    assert f"checkpoint location {query.checkpoint}" in told and "commit async" in told
    assert [row for epoch in sorted(seen) for row in seen[epoch]] == [(row[2],) for row in passed(query.fed)]
    progress = started.recentProgress
    assert [each.epoch for each in progress] == [0, 1, 2]
    assert [each.numInputRows for each in progress] == [50, 50, 50]
    assert progress[-1]["stateOperators"] == [] and progress[-1]["durationMs"]["sink"] > 0


def test_what_needs_an_operator_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path)
    query.feed(batches(1))
    writer = tr.stream(query.frame()).writeStream.format("noop").option("checkpointLocation", str(query.checkpoint))
    with pytest.raises(AnalysisError, match="lateRows"):
        writer.lateRows(lambda rows, epoch: None).start()
    with pytest.raises(AnalysisError, match="outputMode"):
        tr.stream(query.frame()).writeStream.outputMode("complete").format("noop").start()


def test_a_query_with_a_state_does_not_go_on_where_one_without_has_been(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(2))
    passing = tr.writeStream(query.frame().select("v")).foreachBatch(lambda rows, epoch: None)
    passing.option("checkpointLocation", str(query.checkpoint)).trigger(availableNow=True).start().awaitTermination()
    with pytest.raises(CheckpointError, match="operators: was 0, is now 1"):
        query.run()
