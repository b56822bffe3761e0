"""Bad input gets a clear error, at once, and loses nothing. What needs no Spark is tested with the API alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from support.queries.simple import SCHEMA, Scripted, batches
from tailrace.testing import ScriptedSource


@pytest.fixture
def frame(spark: SparkSession, tmp_path: Path) -> DataFrame:
    return ScriptedSource(tmp_path / "in", SCHEMA).stream(spark)


def writer(frame: DataFrame, checkpoint: object = None) -> Any:
    made = tr.stream(frame).groupBy("k").agg(tr.count()).writeStream.outputMode("update").format("noop")
    return made if checkpoint is None else made.option("checkpointLocation", str(checkpoint))


def test_an_unknown_column_is_refused_with_a_list_of_the_columns(frame: DataFrame) -> None:
    listed = r"no column 'kk'.*k, ts, v"
    with pytest.raises(tr.AnalysisError, match=listed):
        tr.stream(frame).groupBy("kk")
    with pytest.raises(tr.AnalysisError, match=listed):
        tr.stream(frame).groupBy("k").agg(tr.sum("kk"))
    with pytest.raises(tr.AnalysisError, match=listed):
        tr.stream(frame).withWatermark("kk", "1 second")
    with pytest.raises(tr.AnalysisError, match=listed):
        tr.stream(frame).groupBy(tr.window("kk", "1 second"))


def test_a_watermark_needs_a_timestamp(frame: DataFrame) -> None:
    with pytest.raises(tr.AnalysisError, match=r"must be a timestamp, but column 'v' is a bigint"):
        tr.stream(frame).withWatermark("v", "1 second")
    with pytest.raises(tr.AnalysisError, match=r"must be a timestamp, but column 'v' is a bigint"):
        tr.stream(frame).groupBy(tr.window("v", "1 second"))


@pytest.mark.parametrize("duration", ["-1 seconds", "soon", "", "10", "1 month", "5 parsecs"])
def test_a_duration_must_be_one(frame: DataFrame, duration: str) -> None:
    with pytest.raises(tr.AnalysisError, match="delayThreshold"):
        tr.stream(frame).withWatermark("ts", duration)
    with pytest.raises(tr.AnalysisError, match="windowDuration"):
        tr.stream(frame).groupBy(tr.window("ts", duration))
    with pytest.raises(tr.AnalysisError, match="slideDuration"):
        tr.stream(frame).groupBy(tr.window("ts", "10 seconds", duration))


@pytest.mark.parametrize(
    ("make", "type_name"),
    [
        (lambda: F.array(F.col("k")), "array<bigint>"),
        (lambda: F.create_map(F.col("k"), F.col("v")), "map<bigint,bigint>"),
        (lambda: F.struct("k", "v"), "struct<"),
        (lambda: F.col("v").cast("double"), "double"),
        (lambda: F.expr("INTERVAL '1' DAY"), "interval"),
    ],
)
def test_an_unsupported_key_type_is_refused_with_what_is_supported(frame: DataFrame, make: Any, type_name: str) -> None:
    with pytest.raises(tr.AnalysisError, match=r"cannot be a group column. Supported are: integers, string") as raised:
        tr.stream(frame.withColumn("bad", make())).groupBy("bad")
    assert type_name in str(raised.value)


def test_a_collated_string_is_refused(frame: DataFrame) -> None:
    collated = frame.withColumn("s", F.collate(F.lit("a"), "UTF8_LCASE"))
    with pytest.raises(tr.AnalysisError, match="compared by their bytes"):
        tr.stream(collated).groupBy("s")
    with pytest.raises(tr.AnalysisError, match="compared by their bytes"):
        tr.stream(collated).groupBy("k").agg(tr.max("s"))


def test_sparks_own_stateful_operators_upstream_are_refused(frame: DataFrame) -> None:
    marked = frame.withWatermark("ts", "1 second")
    upstream = {
        "aggregation": marked.groupBy(F.window("ts", "1 second"), "k").agg(F.max("v").alias("v")),
        "dropDuplicates": frame.dropDuplicates(["k"]),
        "within watermark": marked.dropDuplicatesWithinWatermark(["k"]),
        "join": marked.alias("a").join(marked.alias("b"), F.expr("a.k = b.k AND a.ts = b.ts")).select("a.*"),
    }
    for name, stateful in upstream.items():
        with pytest.raises(tr.AnalysisError, match="Spark's own stateful operator"):
            tr.stream(stateful)
            raise AssertionError(name)


def test_what_is_no_stream_is_refused(spark: SparkSession) -> None:
    with pytest.raises(tr.AnalysisError, match=r"this one is a batch: read it with spark\.readStream"):
        tr.stream(spark.range(3))
    with pytest.raises(tr.AnalysisError, match="takes a streaming DataFrame, not list"):
        tr.stream([1, 2, 3])  # type: ignore[arg-type]


def test_a_static_table_may_be_joined_and_stateless_steps_may_come_first(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path)
    query.feed(batches(3))
    doubled = spark.createDataFrame([(k, 2 * k) for k in range(7)], "k bigint, twice int")
    names = doubled.groupBy("k").agg(F.max("twice").alias("t"))  # stateful, but of a table
    joined = query.frame().join(names, "k", "left").where("ts IS NOT NULL").select("k", "ts", "v")
    query.run(joined)
    query.check()


def test_a_checkpoint_location_is_needed(frame: DataFrame) -> None:
    with pytest.raises(tr.AnalysisError, match=r"needs a checkpointLocation"):
        writer(frame).start()


def test_a_checkpoint_location_that_is_a_file_is_refused(frame: DataFrame, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(tr.TailraceError, match=str(tmp_path / "file")):
        writer(frame, tmp_path / "file").start()
    with pytest.raises(tr.TailraceError, match=str(tmp_path / "file" / "below")):
        writer(frame, tmp_path / "file" / "below").start()


def test_an_unwritable_checkpoint_location_is_refused(frame: DataFrame) -> None:
    """Root may write anywhere but where the kernel keeps its own files."""
    with pytest.raises(tr.TailraceError, match="/proc/nowhere"):
        writer(frame, "/proc/nowhere/check").start()


def test_a_read_only_checkpoint_location_is_refused(frame: DataFrame, tmp_path: Path) -> None:
    """Modes do not bind root, who gets a folder of the kernel's instead."""
    sealed = tmp_path / "sealed"
    sealed.mkdir(mode=0o500)
    folder = sealed if os.geteuid() else Path("/proc/self/task")
    with pytest.raises(tr.TailraceError, match=str(folder)):
        writer(frame, folder).start()


def test_append_needs_a_window_and_a_watermark(frame: DataFrame, tmp_path: Path) -> None:
    plain = tr.stream(frame).groupBy("k").agg(tr.count()).writeStream.format("noop")
    with pytest.raises(tr.AnalysisError, match=r"needs a window.*and a watermark"):
        plain.option("checkpointLocation", str(tmp_path / "c")).start()


def test_a_refused_query_leaves_no_trace(frame: DataFrame, tmp_path: Path) -> None:
    with pytest.raises(tr.AnalysisError):
        writer(frame, tmp_path / "c").option("shards", "none").start()
    assert not (tmp_path / "c").exists()


def test_too_many_state_values_are_refused(frame: DataFrame, tmp_path: Path) -> None:
    many = [tr.sum("v").alias(f"s{i}") if i % 2 else tr.max("v").alias(f"m{i}") for i in range(4)]
    columns = {f"c{i}": F.col("v") for i in range(80)}
    wide = [tr.max(name) for name in columns]
    made = tr.stream(frame.withColumns(columns)).groupBy("k").agg(*many, *wide).writeStream.outputMode("update")
    with pytest.raises(tr.AnalysisError, match="at most"):
        made.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
