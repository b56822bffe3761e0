"""Each use of what Spark does not promise, on a live session: it fails with the name of the interface that has changed.

Run on every supported version by ``make test-versions``.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.types import StructField, StructType

from support.processes import wait_until
from tailrace.spark import private
from tailrace.spark.sources.schema import spark_type
from tailrace.state.rows.columns import arrow_type
from tailrace.types import DataType


def test_the_plan_of_a_stream_shows_operators_and_sources(spark: SparkSession, tmp_path: Path) -> None:
    files = spark.readStream.schema("k bigint").option("CleanSource", "DELETE").json(str(tmp_path))
    rate = spark.readStream.format("rate").option("RowsPerSecond", "7").load().selectExpr("value AS k")
    table = spark.range(3).withColumnRenamed("id", "k")
    plan = list(private.streaming_plan(files.union(rate).join(table, "k")))
    names = [node.name for node in plan]
    assert names.count("Join") == 1 and names.count("Union") == 1, names
    assert len(next(node for node in plan if node.name == "Join").streaming_inputs) == 1, "the table is no stream"
    assert len(next(node for node in plan if node.name == "Union").streaming_inputs) == 2
    (file_node,) = (node for node in plan if node.name == "StreamingRelation")
    (rate_node,) = (node for node in plan if node.name == "StreamingRelationV2")
    assert file_node.is_leaf and rate_node.is_leaf
    kind, options = file_node.file_source()
    assert kind == "json" and options["cleansource"] == "DELETE"
    kind, options = rate_node.table_source()
    assert kind == "rate" and options["rowspersecond"] == "7"


def test_a_driver_that_runs_its_tasks_itself_has_no_executors(spark: SparkSession) -> None:
    assert private.executors(spark) == {}


def test_a_batch_has_no_streaming_plan(spark: SparkSession) -> None:
    assert list(private.streaming_plan(spark.range(1))) == []


def test_a_column_keeps_its_expression_id_while_it_is_passed_on(spark: SparkSession) -> None:
    before = spark.range(1).selectExpr("id AS a", "id AS b")
    (first,) = private.expression_ids(before, "a")
    assert private.expression_ids(before.where("a > 0").select("b", "a"), "a") == [first]
    assert private.expression_ids(before.selectExpr("a + 1 AS a"), "a") != [first]
    assert private.expression_ids(before, "c") == []
    assert len(private.expression_ids(before.select("a", "a"), "a")) == 2


@pytest.mark.parametrize(("tasks_max", "direct"), [(2, True), (1, False)])
def test_a_batch_is_collected_without_a_second_query(
    spark: SparkSession, tmp_path: Path, tasks_max: int, direct: bool
) -> None:
    spark.range(0, 6, 1, 1).write.parquet(str(tmp_path / "in"))
    found: list[list[str] | None] = []

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"text": [f"{sum(len(batch) for batch in batches)} rows"]})

    def look(batch: DataFrame, epoch: int) -> None:
        found.append(private.batch_texts(batch, tasks_max))
        found.append(private.batch_texts(batch.where("text IS NOT NULL"), tasks_max))

    rows = spark.readStream.schema("id long").parquet(str(tmp_path / "in")).repartition(2)
    query = (
        rows.mapInArrow(count, "text string")
        .writeStream.foreachBatch(look)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    texts, transformed = found
    assert transformed is None, "a DataFrame that was made of a batch must be planned"
    assert (texts == ["3 rows", "3 rows"]) if direct else (texts is None)


_COLUMNS: dict[DataType, list[Any]] = {
    DataType("tinyint"): [1, -128],
    DataType("smallint"): [1, -32768],
    DataType("int"): [7, -(1 << 31)],
    DataType("bigint"): [1 << 62, -(1 << 63)],
    DataType("float"): [0.5, float("inf")],
    DataType("double"): [-0.0, 1e300],
    DataType("boolean"): [True, False],
    DataType("date"): [date(1969, 12, 31), date(2026, 2, 28)],
    DataType("timestamp"): [datetime(1960, 1, 1, 0, 0, 0, 1, UTC), datetime(2026, 3, 29, 2, 30, tzinfo=UTC)],
    DataType("timestamp_ntz"): [datetime(1960, 1, 1, 0, 0, 0, 1), datetime(2026, 3, 29, 2, 30)],
    DataType("string"): ["", "t\u00e4t"],
    DataType("binary"): [b"", b"\x00\xff"],
    DataType("decimal(38,2)"): [Decimal("1.25"), Decimal("-" + "9" * 36 + ".99")],
    DataType("array<string>"): [[], ["a", None]],
    DataType("array<decimal(10,1)>"): [[Decimal("0.5")], []],
    DataType("struct<start:timestamp,end:timestamp>"): [
        {edge: datetime(2026, 1, 1, hour, tzinfo=UTC) for edge, hour in (("start", 1), ("end", 2))},
        {edge: datetime(1900, 1, 1, hour, tzinfo=UTC) for edge, hour in (("start", 3), ("end", 4))},
    ],
}


@pytest.mark.parametrize("large_types", [False, True])
@pytest.mark.parametrize("rows", [3, 0])
def test_rows_of_every_type_become_a_frame_as_pyspark_makes_it(
    spark: SparkSession, rows: int, large_types: bool
) -> None:
    columns = {f"c{number}": (type_, [*values, None][:rows]) for number, (type_, values) in enumerate(_COLUMNS.items())}
    table = pa.table({name: pa.array(values, arrow_type(type_)) for name, (type_, values) in columns.items()})
    schema = StructType([StructField(name, spark_type(type_)) for name, (type_, _) in columns.items()])
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    session.conf.set("spark.sql.execution.arrow.useLargeVarTypes", str(large_types).lower())
    made, expected = private.arrow_frame(session, table, schema), session.createDataFrame(table, schema=schema)
    assert made.schema == expected.schema == schema
    assert made.collect() == expected.collect()
    assert made.selectExpr("count(1)", "max(c8)", "max(c10)").collect()[0][0] == rows, "a query can be made of it"


def test_an_error_that_pyspark_has_no_name_for(spark: SparkSession) -> None:
    """Reading from a file system that Spark does not have: its error is one of these two, in every version."""
    with pytest.raises((PySparkException, private.JAVA_ERROR)):
        spark.read.format("binaryFile").load("nosuch://place/file").collect()


def test_a_folder_is_reached_by_sparks_own_file_systems(spark: SparkSession, tmp_path: Path) -> None:
    folder = private.HadoopFolder(spark, f"{tmp_path}/a b", {"compression": "gzip"})
    assert (folder.scheme, folder.path, folder.uri) == ("file", f"{tmp_path}/a b", f"file:{tmp_path}/a b")
    assert folder.files("x") == [] and folder.folders("x") == []
    folder.make_folder("x/y")
    (tmp_path / "a b" / "x" / "y" / "ä").touch()
    assert folder.files("x") == ["y/ä"] and folder.folders("x") == ["y"]
    assert folder.exists("x/y/ä") and not folder.exists("x/z")
    assert folder.rename("x/y", "x/z") and not folder.rename("x/y", "x/z")
    folder.remove("x")
    folder.remove("x")
    assert not folder.exists("x")


def test_a_listener_comes_first_and_changes_the_progress(spark: SparkSession, tmp_path: Path) -> None:
    class Last(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None: ...
        def onQueryProgress(self, event: Any) -> None:
            seen.append(event.progress.durationMs)

        def onQueryTerminated(self, event: Any) -> None:
            seen.append({})

    def change(progress: dict[str, Any]) -> dict[str, Any]:
        return {**progress, "durationMs": {"ours": progress["batchId"] + 7}}

    seen: list[dict[str, int]] = []
    ended: list[str] = []
    ids: list[tuple[str, str]] = []
    session, last = spark.newSession(), Last()
    session.streams.addListener(last)
    ours = private.ProgressListener(change, ended.append)
    for _ in range(2):  # it is there once, however often it is asked for
        private.listen_first(session, ours)
    writer = session.readStream.format("rate").load().writeStream.trigger(once=True)
    writer = writer.foreachBatch(lambda batch, _: ids.append(private.streaming_ids(batch.sparkSession)))
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    query.awaitTermination()
    wait_until("the last event", lambda: {} in seen, 30)
    assert ids == [(query.id, query.runId)] and ended == [query.runId]
    assert seen == [{"ours": 7}, {}]
    assert query.lastProgress is not None and query.lastProgress.durationMs == {"ours": 7}
    session.streams.removeListener(last)
