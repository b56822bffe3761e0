"""Each of the sinks, in both modes: what is read back is what the oracle says, after restarts too."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from support.queries.engines import tailrace_stream
from support.queries.file_readers import check_readers
from support.queries.simple import ROLLING, WINDOWED, Scripted, batches
from tailrace.errors import AnalysisError, CheckpointError
from tailrace.spark.sinks.files import sink as sinks
from tailrace.spark.sinks.files.places import LocalPlace
from tailrace.spark.sinks.rows import partitioned_by_value
from tailrace.testing import describe, differences, expected

COLUMNS = ("k", "total", "n")
QUESTIONS = {
    "append": WINDOWED,
    "update": replace(WINDOWED, output_mode="update"),
    "rolling": ROLLING,
    "complete": replace(ROLLING, output_mode="complete"),
}


def start(query: Scripted, format_: str, path: Path | None, **options: str) -> Any:
    writer = tailrace_stream(query.frame(), query.question).writeStream.outputMode(query.question.output_mode)
    writer = writer.format(format_).option("checkpointLocation", str(query.checkpoint)).trigger(availableNow=True)
    for name, value in options.items():
        writer = writer.queryName(value) if name == "queryName" else writer.option(name, value)
    started = writer.start(str(path)) if path is not None else writer.start()
    started.awaitTermination()
    started.stop()
    return started


def wanted(query: Scripted) -> dict[int, pa.Table]:
    return {epoch.epoch: epoch.rows for epoch in expected(query.spark, query.question, query.fed)}


def check_epochs(query: Scripted, read: Any) -> None:
    """``read`` gives the rows of one epoch, or None where it wrote nothing."""
    group = (*(("window",) if query.question.windows else ()), *query.question.keys)
    for epoch, rows in wanted(query).items():
        got = read(epoch)
        if got is None:
            assert rows.num_rows == 0
            continue
        found = differences(got, rows, group)
        assert not found, f"epoch {epoch}: {describe(found)}"


@pytest.mark.parametrize(
    ("format_", "mode"),
    [
        ("parquet", "append"),
        ("parquet", "rolling"),
        pytest.param("parquet", "update", marks=pytest.mark.long),
        pytest.param("json", "append", marks=pytest.mark.long),
        pytest.param("orc", "update", marks=pytest.mark.long),
    ],
)
def test_files_hold_every_epoch_once(spark: SparkSession, tmp_path: Path, format_: str, mode: str) -> None:
    query = Scripted(spark, tmp_path, QUESTIONS[mode])
    every = batches(5)
    for part in (every[:3], every[3:]):
        query.feed(part)
        start(query, format_, tmp_path / "out")
    schema = spark.createDataFrame(pa.concat_tables(wanted(query).values())).schema

    def read(epoch: int) -> pa.Table | None:
        folder = tmp_path / "out" / f"tailrace_epoch={epoch}"
        return spark.read.schema(schema).format(format_).load(str(folder)).toArrow() if folder.exists() else None

    check_epochs(query, read)
    complete = spark.read.schema(schema).format(format_).load(str(tmp_path / "out"))
    assert complete.count() == sum(rows.num_rows for rows in wanted(query).values())


def test_csv_holds_every_epoch_once(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(3))
    start(query, "csv", tmp_path / "out", header="true")
    schema = spark.createDataFrame(wanted(query)[2]).schema

    def read(epoch: int) -> pa.Table:
        folder = str(tmp_path / "out" / f"tailrace_epoch={epoch}")
        return spark.read.schema(schema).option("header", "true").csv(folder).toArrow()

    check_epochs(query, read)


def forget_commit(query: Scripted, epoch: int) -> None:
    """As after a crash between our durable entry and Spark's commit."""
    for path in query.checkpoint.glob(f"commits/*{epoch}*"):
        path.unlink()


def test_a_replayed_epoch_keeps_its_files(spark: SparkSession, tmp_path: Path) -> None:
    """Plain readers find each row once, also beside what a crashed run has left."""
    query, out = Scripted(spark, tmp_path, ROLLING), tmp_path / "out"
    query.feed(batches(4))
    start(query, "parquet", out)
    before = sorted(out.glob("tailrace_epoch=*/*"))
    shutil.copytree(out / "tailrace_epoch=3", out / "_tailrace" / f"{3:020d}-{'a' * 16}-0000")
    forget_commit(query, 3)
    check_readers(spark, out, expected(spark, ROLLING, query.fed), COLUMNS)
    start(query, "parquet", out)
    assert sorted(out.glob("tailrace_epoch=*/*")) == before
    assert list((out / "_tailrace").iterdir()) == [], "what a crashed run has left is gone"
    check_readers(spark, out, expected(spark, ROLLING, query.fed), COLUMNS)


def test_files_that_were_decided_and_not_moved_are_moved_by_the_next_start(spark: SparkSession, tmp_path: Path) -> None:
    query, out = Scripted(spark, tmp_path, ROLLING), tmp_path / "out"
    query.feed(batches(2))
    start(query, "parquet", out)
    (manifest,) = (query.state / "sinks" / "output").glob("*1.json")
    folder = json.loads(manifest.read_text())["body"]["folder"]
    (out / "tailrace_epoch=1").rename(out / folder)
    forget_commit(query, 1)
    query.feed(batches(3)[2:])
    start(query, "parquet", out)
    check_readers(spark, out, expected(spark, ROLLING, query.fed), COLUMNS)


def test_manifests_are_kept_as_long_as_an_epoch_may_come_again(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(5))
    start(query, "parquet", tmp_path / "out")
    kept = sorted(int(path.stem) for path in (query.state / "sinks" / "output").iterdir())
    assert kept == [3, 4]


def test_rows_that_spark_has_written_where_no_driver_finds_them_are_an_error(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a path on the disks of executors' machines: the epoch would be taken for one without rows."""
    query, out, elsewhere = Scripted(spark, tmp_path, ROLLING), tmp_path / "out", tmp_path / "elsewhere"
    query.feed(batches(2))
    with monkeypatch.context() as patch:
        patch.setattr(sinks, "place_of", lambda *_: LocalPlace(elsewhere))
        with pytest.raises(CheckpointError, match=r"8 rows of epoch 0 .*elsewhere/_tailrace/.* no file there.*share"):
            start(query, "parquet", out)
    start(query, "parquet", out)
    check_readers(spark, out, expected(spark, ROLLING, query.fed), COLUMNS)


def test_a_path_of_another_query_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for name in ("first", "second"):
        query = Scripted(spark, tmp_path / name, ROLLING)
        query.feed(batches(1))
        if name == "first":
            start(query, "parquet", out)
    with pytest.raises(CheckpointError, match=r"out/tailrace_epoch=0 exists.*a path of its own"):
        start(query, "parquet", out)
    assert spark.read.parquet(str(out)).count() == wanted(query)[0].num_rows


def test_a_path_that_spark_cannot_write_to_is_refused_before_anything_is_taken(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(1))
    writer = tailrace_stream(query.frame(), ROLLING).writeStream.outputMode("update").format("parquet")
    with pytest.raises(AnalysisError, match=r'cannot write to nothing://x/y: No FileSystem for scheme "nothing"'):
        writer.option("checkpointLocation", str(query.checkpoint)).start("nothing://x/y")
    assert not query.state.exists()


def test_a_path_with_spaces_and_signs_as_a_uri(spark: SparkSession, tmp_path: Path) -> None:
    query, out = Scripted(spark, tmp_path, ROLLING), tmp_path / "o u%20t"
    query.feed(batches(2))
    writer = tailrace_stream(query.frame(), ROLLING).writeStream.outputMode("update").option("compression", "gzip")
    writer = writer.option("checkpointLocation", str(query.checkpoint)).trigger(availableNow=True)
    writer.start(f"file:{out}/").awaitTermination()
    assert all(path.name.endswith(".gz.parquet") for path in out.glob("tailrace_epoch=*/part-*"))
    check_readers(spark, out, expected(spark, ROLLING, query.fed), COLUMNS)


def test_partition_by(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(1))
    writer = tailrace_stream(query.frame(), ROLLING).writeStream.outputMode("update").partitionBy("k")
    writer = writer.option("checkpointLocation", str(query.checkpoint)).trigger(availableNow=True)
    writer.start(str(tmp_path / "out")).awaitTermination()
    assert (tmp_path / "out" / "tailrace_epoch=0" / "k=3").is_dir()


@pytest.mark.parametrize("mode", QUESTIONS)
def test_memory_is_a_table_of_all_rows(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    """The first epochs of ``append`` are empty: the table is there all the same. Complete replaces what it had."""
    query = Scripted(spark, tmp_path, QUESTIONS[mode])
    query.feed(batches(5))
    start(query, "memory", None, queryName=f"results_{mode}")
    rows = spark.table(f"results_{mode}").toArrow()
    epochs = list(wanted(query).values())
    want = epochs[-1] if mode == "complete" else pa.concat_tables(epochs)
    assert rows.column_names == want.column_names
    assert sorted(map(str, rows.to_pylist())) == sorted(map(str, want.to_pylist()))


def test_console_shows_every_epoch(spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(2))
    start(query, "console", None)
    shown = capfd.readouterr().out
    assert "Batch: 0" in shown and "Batch: 1" in shown
    assert "total" in shown


def test_foreach_gives_a_partition_of_an_epoch_the_same_rows_again(spark: SparkSession, tmp_path: Path) -> None:
    """One epoch by ``once``, whatever the source's limits; it is replayed, and ``open`` may pass over what it has."""
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(2))

    class Files:
        def __init__(self, folder: Path) -> None:
            self.folder = folder

        def open(self, partition: int, epoch: int) -> bool:
            self.path, self.rows = self.folder / f"{epoch}-{partition}", []
            return partition % 2 == 0 or not self.path.exists()

        def process(self, row: Any) -> None:
            self.rows.append([row.k, row.total, row.n])

        def close(self, error: Exception | None) -> None:
            assert error is None
            if self.rows or not self.path.exists():
                self.path.write_text(json.dumps(sorted(self.rows, key=repr)))

    written = []
    for folder in (tmp_path / "first", tmp_path / "again"):
        folder.mkdir()
        writer = tailrace_stream(query.frame(), query.question).writeStream.outputMode("update").foreach(Files(folder))
        started = writer.option("checkpointLocation", str(query.checkpoint)).trigger(once=True).start()
        started.awaitTermination()
        assert [each.epoch for each in started.recentProgress] == [0]
        written.append({path.name: json.loads(path.read_text()) for path in folder.iterdir()})
        forget_commit(query, 0)
    assert written[0] == written[1] and all(name.startswith("0-") for name in written[0])
    want = spark.createDataFrame(pa.concat_tables(query.fed)).groupBy("k").agg({"v": "sum", "*": "count"})
    rows = sorted((row for part in written[0].values() for row in part), key=repr)
    assert rows == sorted(([row["k"], row["sum(v)"], row["count(1)"]] for row in want.collect()), key=repr)


def test_rows_go_to_partitions_by_their_values(spark: SparkSession) -> None:
    rows = spark.range(60).selectExpr("id", "map('a', id) AS m", "id % 3 AS `a.b`", "1 AS two", "2 AS Two")

    def places(frame: DataFrame) -> dict[int, int]:
        found = partitioned_by_value(frame).select("id", F.spark_partition_id())
        return {row[0]: row[1] for row in found.collect()}

    first = places(rows.repartition(3))
    assert first == places(rows.orderBy(F.desc("id"))) and len(set(first.values())) > 1
    assert partitioned_by_value(rows.select("m")).rdd.getNumPartitions() == 1, "Spark hashes no maps"


@pytest.mark.parametrize("mode", QUESTIONS)
def test_noop_runs_and_counts(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    query = Scripted(spark, tmp_path, QUESTIONS[mode])
    query.feed(batches(4))
    started = start(query, "noop", None)
    counts = [progress.output_rows for progress in started.recentProgress]
    assert counts == [rows.num_rows for rows in wanted(query).values()]


def test_the_output_may_be_read_any_number_of_times(spark: SparkSession, tmp_path: Path) -> None:
    """Small ones are in the driver, large ones at the servers; both are DataFrames like any other."""
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(1) + batches(1, rows=30_000, keys=29_000))
    counts: list[tuple[int, int, int]] = []

    def save(batch: Any, epoch: int) -> None:
        query.output.save(batch, epoch)
        total = batch.agg({"n": "sum"}).first()[0]
        counts.append((batch.count(), batch.select("k").distinct().count(), total))

    writer = tailrace_stream(query.frame(), ROLLING).writeStream.outputMode("update").foreachBatch(save)
    writer.option("checkpointLocation", str(query.checkpoint)).trigger(availableNow=True).start().awaitTermination()
    query.check()
    for rows, (count, distinct, total) in zip(query.output.tables.values(), counts, strict=True):
        assert count == distinct == rows.num_rows
        assert total == sum(rows["n"].to_pylist())


def test_progress_is_there_in_python_and_json(spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    query = Scripted(spark, tmp_path, WINDOWED)
    query.feed(batches(4, rows=50))
    started = start(query, "noop", None, queryName="progress_test")
    last = started.lastProgress
    assert last["numInputRows"] == 50 and last.input_rows == 50
    assert last["inputRowsPerSecond"] > 0
    assert last["name"] == "progress_test" and started.name == "progress_test"
    for step in ("plan", "ingest", "combine", "transfer", "apply", "advance", "commit", "sink", "addBatch"):
        assert last["durationMs"][step] >= 0
    (operator,) = last["stateOperators"]
    assert (operator["operatorKind"], operator["store"]) == ("sliding window aggregate", "RMW")
    assert operator["numRowsTotal"] > 0 and last.state_bytes == operator["memoryUsedBytes"] > 0
    assert '"batchId":3' in last.json
    started.explain()
    assert "RMW" in capsys.readouterr().out
    assert started.status["isTriggerActive"] is False
