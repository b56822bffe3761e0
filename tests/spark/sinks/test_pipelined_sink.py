"""Spark's work beside the servers' steps: what becomes of each when the other fails. And sinks that are begun so."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import tailrace as tr
from support.queries.engines import tailrace_stream
from support.queries.simple import ROLLING, Scripted, batches
from tailrace.errors import CheckpointError, StateServerError, UserFunctionError
from tailrace.spark.epoch import query_output
from tailrace.spark.epoch import runner as epochs
from tailrace.spark.epoch.pipelined_sink import run_pipelined_sink
from tailrace.spark.sinks.files.places import LocalPlace
from tailrace.testing import describe, differences, expected

FINGERPRINT = "test-alongside"


def _waits(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    time.sleep(600)
    yield from rows


def test_a_job_that_waits_for_steps_that_fail_is_cancelled(spark: SparkSession) -> None:
    def steps() -> None:
        raise StateServerError("gone")

    with pytest.raises(StateServerError, match="gone"):
        run_pipelined_sink(
            spark.sparkContext, FINGERPRINT, steps, lambda: spark.range(1).mapInArrow(_waits, "id long").collect()
        )
    assert FINGERPRINT not in spark.sparkContext.getJobTags()
    assert spark.range(3).count() == 3, "others are not"


def test_steps_are_waited_for_when_spark_fails(spark: SparkSession) -> None:
    done: list[str] = []

    def steps() -> None:
        time.sleep(0.3)
        done.append("steps")

    def fails() -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        run_pipelined_sink(spark.sparkContext, FINGERPRINT, steps, fails)
    assert done == ["steps"]


def test_what_the_steps_failed_with_counts_more(spark: SparkSession) -> None:
    def steps() -> None:
        raise StateServerError("gone")

    def fails() -> None:
        raise OSError("cannot read")

    with pytest.raises(StateServerError, match="gone"):
        run_pipelined_sink(spark.sparkContext, FINGERPRINT, steps, fails)


@pytest.fixture
def nothing_comes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs stay in the servers, however small they are, and however long they take to make."""
    monkeypatch.setattr(query_output, "LOCAL_ROWS_MAX", -1)
    monkeypatch.setattr(epochs, "_PIPELINED_MS_MAX", math.inf)


def _order(query: Any, epoch: int) -> list[str]:
    progress = next(each for each in query.recentProgress if each.epoch == epoch)
    return [step.name for step in sorted(progress.timeline, key=lambda step: step.began) if step.epoch == epoch]


@pytest.mark.usefixtures("nothing_comes_along")
def test_files_begun_before_their_rows_are_there(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed((*batches(4), *batches(1, rows=0), *batches(2)))
    writer = tailrace_stream(query.frame(), ROLLING).writeStream.outputMode("update").format("parquet")
    writer = writer.option("checkpointLocation", str(query.checkpoint)).trigger(availableNow=True)
    started = writer.start(str(tmp_path / "out"))
    started.awaitTermination()
    instructions = {epoch: _order(started, epoch) for epoch in range(7)}
    started.stop()
    assert instructions[0].index("gate") > instructions[0].index("advance"), "nobody knew that there would be rows"
    assert instructions[3].index("gate") < instructions[3].index("advance")
    for epoch in expected(spark, ROLLING, query.fed):
        got = spark.read.parquet(str(tmp_path / "out" / f"tailrace_epoch={epoch.epoch}")).toArrow()
        found = differences(got, epoch.rows, ROLLING.keys)
        assert not found, f"epoch {epoch.epoch}: {describe(found)}"


@pytest.mark.usefixtures("nothing_comes_along")
def test_rows_whose_files_are_not_found_are_an_error_and_no_rows_are_none(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark writes no file for no rows where it partitions them, and nobody knows beforehand that there are none."""
    query, out = Scripted(spark, tmp_path, ROLLING), tmp_path / "out"
    query.feed((*batches(4), *batches(1, rows=0), *batches(2)))
    seal = LocalPlace.seal

    def blind(self: LocalPlace, folder: str) -> list[str]:
        return [] if folder.startswith(f"_tailrace/{5:020d}") else seal(self, folder)

    def start() -> None:
        writer = tailrace_stream(query.frame(), ROLLING).writeStream.outputMode("update").format("parquet")
        writer = writer.partitionBy("k").option("checkpointLocation", str(query.checkpoint))
        writer.trigger(availableNow=True).start(str(out)).awaitTermination()

    with monkeypatch.context() as patch:
        patch.setattr(LocalPlace, "seal", blind)
        with pytest.raises(CheckpointError, match=r"rows of epoch 5 .* no file there"):
            start()
    start()
    found = spark.read.parquet(str(out)).groupBy("tailrace_epoch").count().collect()
    rows = {epoch.epoch: epoch.rows.num_rows for epoch in expected(spark, ROLLING, query.fed)}
    assert rows[4] == 0 and {row[0]: row[1] for row in found} == {epoch: n for epoch, n in rows.items() if n}


@pytest.mark.usefixtures("nothing_comes_along")
def test_a_function_that_fails_beside_its_sink_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """The sink's tasks wait for rows that never come; the error is the function's."""
    broken = tmp_path / "broken"
    broken.touch()
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(5))

    def count(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
        if broken.exists() and pc.any(pc.greater(state["n"], 2)).as_py():
            raise ValueError("broken")
        keys = state.select(["k"])
        old = pc.fill_null(state["n"], 0)
        new = keys.append_column("n", pc.add(old, 1))
        return new, new

    def start() -> Any:
        stream = tr.stream(query.frame().selectExpr("'one' as k")).groupBy("k")
        writer = stream.process(count, "k string, n bigint", state="n bigint").writeStream.outputMode("append")
        writer = writer.format("parquet").option("checkpointLocation", str(query.checkpoint))
        return writer.trigger(availableNow=True).start(str(tmp_path / "out"))

    started = start()
    with pytest.raises(UserFunctionError, match=r"epoch 3.*broken"):
        started.awaitTermination()
    started.stop()
    broken.unlink()
    started = start()
    started.awaitTermination()
    started.stop()
    assert sorted(row.n for row in spark.read.parquet(str(tmp_path / "out")).collect()) == [1, 2, 3, 4, 5]
