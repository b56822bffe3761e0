"""Queries into tables: what an outside reader finds is what the oracle says, over restarts and replays."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from support.queries.engines import tailrace_stream
from support.queries.passing import in_parts, ordered, passed
from support.queries.simple import ROLLING, WINDOWED, Scripted, batches
from support.sinks.cases import KafkaCase
from tailrace.env.stores.local_store import LocalStore
from tailrace.errors import AnalysisError, CheckpointError
from tailrace.lab.servers.kafka import KafkaBroker
from tailrace.lab.servers.postgres import PostgresServer
from tailrace.log import filenames
from tailrace.spark.epoch import query_output
from tailrace.spark.sinks import set_aside
from tailrace.spark.tasks.set_aside import SetAside
from tailrace.testing import expected

Row = tuple[Any, ...]


@pytest.fixture(autouse=True)
def tables(postgres: PostgresServer) -> None:
    """Empty ones."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(
            "drop table if exists appended, upserted, plain; create table appended (k bigint, total bigint, n bigint, "
            "window_start timestamptz, window_end timestamptz); create table upserted (k bigint, total bigint, "
            "n bigint); create unique index on upserted (k) nulls not distinct"
        )


def into(
    query: Scripted,
    postgres: PostgresServer,
    table: str,
    mode: str,
    transform: Callable[[DataFrame], DataFrame] | None = None,
    **options: str,
) -> None:
    """Runs to the end of what was fed."""
    stream = tailrace_stream(query.frame(), query.question)
    stream = stream if transform is None else stream.transform(transform)
    writer = stream.writeStream.outputMode(mode).format("postgresql").option("url", postgres.url)
    writer = writer.option("checkpointLocation", str(query.checkpoint)).options(**options)
    started = writer.trigger(availableNow=True).toTable(table)
    started.awaitTermination()
    started.stop()


def forget_commit(query: Scripted, epoch: int) -> None:
    """As after a crash between our durable entry and Spark's commit."""
    for path in query.checkpoint.glob(f"commits/*{epoch}*"):
        path.unlink()


def final_rows(query: Scripted) -> list[Row]:
    """All rows of the windows that are closed."""
    found = pa.concat_tables(epoch.rows for epoch in expected(query.spark, query.question, query.fed))
    windows = found.column("window").combine_chunks()
    columns = [found.column(name).to_pylist() for name in ("k", "total", "n")]
    return ordered(zip(*columns, *(edge.to_pylist() for edge in windows.flatten())))


def newest_rows(query: Scripted) -> list[Row]:
    last: dict[Any, Row] = {}
    for epoch in expected(query.spark, query.question, query.fed):
        last |= {row["k"]: (row["k"], row["total"], row["n"]) for row in epoch.rows.to_pylist()}
    return ordered(last.values())


@pytest.mark.parametrize("local", [True, False])
def test_closed_windows_are_in_a_table_once(
    spark: SparkSession, tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    """``local``: the rows come with the servers' answers; else the driver reads them from the servers."""
    if not local:
        monkeypatch.setattr(query_output, "LOCAL_ROWS_MAX", -1)
    query = Scripted(spark, tmp_path, WINDOWED)
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        for part in (batches(5)[:3], batches(5)[3:], ()):
            query.feed(part)
            into(query, postgres, "appended", "append")
            forget_commit(query, len(query.fed) - 1)
        found = connection.execute("select k, total, n, window_start, window_end from appended").fetchall()
    assert ordered(found) == final_rows(query)


def test_closed_windows_are_in_a_topic_once(spark: SparkSession, tmp_path: Path, kafka: KafkaBroker) -> None:
    query = Scripted(spark, tmp_path, WINDOWED)
    topic = KafkaCase({"bootstrap": kafka.bootstrap, "table": "windows", "upsert": ""})
    topic.create()
    for part in (batches(5)[:3], batches(5)[3:], ()):
        query.feed(part)
        writer = tailrace_stream(query.frame(), WINDOWED).writeStream.format("kafka").option("topic", "windows")
        writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap).trigger(availableNow=True)
        started = writer.option("checkpointLocation", str(query.checkpoint)).start()
        started.awaitTermination()
        forget_commit(query, len(query.fed) - 1)
    found = [json.loads(value) for value in topic.values()]
    read = [[*(row[name] for name in ("k", "total", "n")), *map(at, row["window"].values())] for row in found]
    assert ordered(read) == final_rows(query)


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_tables_of_a_lake_take_windows_and_groups(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    """Both tables are made by the query: one gets a row more for each closed window, one has a row for each group."""
    lake = {"catalog.type": "sql", "catalog.uri": f"sqlite:///{tmp_path}/lake.db", "catalog.warehouse": str(tmp_path)}
    if format_ == "iceberg":
        catalog = load_catalog("default", **{name.partition(".")[2]: value for name, value in lake.items()})
        catalog.create_namespace("shop")

    def found(name: str) -> pa.Table:
        if format_ == "delta":
            return DeltaTable(str(tmp_path / name)).to_pyarrow_table()
        return catalog.load_table(f"shop.{name}").scan().to_arrow()

    for name, question in (("windows", WINDOWED), ("groups", ROLLING)):
        query = Scripted(spark, tmp_path / f"query-{name}", question)
        for part in (batches(4)[:2], batches(4)[2:], ()):
            query.feed(part)
            frame = query.frame().where("k is not null") if name == "groups" else query.frame()
            writer = tailrace_stream(frame, question).writeStream.outputMode(question.output_mode).format(format_)
            writer = writer.option("checkpointLocation", str(query.checkpoint)).trigger(availableNow=True)
            writer = writer.option("keyColumns", "k") if name == "groups" else writer
            if format_ == "delta":
                started = writer.start(str(tmp_path / name))
            else:
                started = writer.options(**lake).toTable(f"shop.{name}")
            started.awaitTermination()
            forget_commit(query, len(query.fed) - 1)
        rows = [tuple(row[column] for column in ("k", "total", "n")) for row in found(name).to_pylist()]
        if name == "groups":
            assert ordered(rows) == [row for row in newest_rows(query) if row[0] is not None]
        else:
            edges = [tuple(row["window"].values()) for row in found(name).to_pylist()]
            assert ordered((*row, *edge) for row, edge in zip(rows, edges)) == final_rows(query)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_groups_are_replaced_by_their_key_and_spark_may_stand_between(
    spark: SparkSession, tmp_path: Path, postgres: PostgresServer
) -> None:
    query = Scripted(spark, tmp_path, ROLLING)

    def doubled(rows: DataFrame) -> DataFrame:
        return rows.withColumn("total", F.col("total") * 2)

    for part in (batches(4)[:2], batches(4)[2:]):
        query.feed(part)
        into(query, postgres, "upserted", "update", doubled, keyColumns="k")
        forget_commit(query, len(query.fed) - 1)
    with psycopg.connect(postgres.url) as connection:
        found = connection.execute("select k, total / 2, n from upserted").fetchall()
    assert ordered(found) == newest_rows(query)


def test_a_plain_query_writes_to_a_table_by_its_name(
    spark: SparkSession, tmp_path: Path, postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(3))
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("create table plain (k bigint, count bigint); create unique index on plain (k)")
        writer = tr.writeStream(query.frame().where("k is not null").groupBy("k").count(), fallback=False)
        writer = writer.outputMode("update").format("postgresql").option("url", postgres.url)
        writer = writer.option("keyColumns", "k").option("checkpointLocation", str(query.checkpoint))
        started = writer.trigger(availableNow=True).toTable("plain")
        started.awaitTermination()
        started.explain(True)
        found = dict(connection.execute("select * from plain").fetchall())
    told = capsys.readouterr().out
    assert "Sink postgresql plain" in told
    assert "Offsets after epoch 2\n   FileStreamSource[" in told
    assert postgres.password not in told
    assert found == {row[0]: row[2] for row in newest_rows(query) if row[0] is not None}


def test_what_a_table_cannot_take_is_refused_before_the_query_starts(
    spark: SparkSession, tmp_path: Path, postgres: PostgresServer
) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(1))
    with pytest.raises(AnalysisError, match="keyColumns"):
        into(query, postgres, "upserted", "update")
    with pytest.raises(AnalysisError, match="did you mean 'keyColumns'"):
        into(query, postgres, "upserted", "update", keyColumn="k")
    with pytest.raises(AnalysisError, match="no column 'k'"):
        into(query, postgres, "pg_class", "update", writeMode="append")
    with pytest.raises(AnalysisError, match="url"):
        tailrace_stream(query.frame(), ROLLING).writeStream.outputMode("update").format("postgresql").option(
            "checkpointLocation", str(query.checkpoint)
        ).start()


def test_a_state_that_is_older_than_the_table_is_refused(
    spark: SparkSession, tmp_path: Path, postgres: PostgresServer
) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(2))
    into(query, postgres, "upserted", "update", keyColumns="k")
    shutil.copytree(query.checkpoint, tmp_path / "copy")
    query.feed(batches(4)[2:])
    into(query, postgres, "upserted", "update", keyColumns="k")
    shutil.rmtree(query.checkpoint)
    (tmp_path / "copy").rename(query.checkpoint)
    with pytest.raises(CheckpointError, match="older than the table"):
        into(query, postgres, "upserted", "update", keyColumns="k")


@pytest.mark.parametrize("few", [True, False])
def test_rows_without_a_state_are_in_a_database_once_and_in_order(
    spark: SparkSession, tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, few: bool
) -> None:
    """``few``: they come with the receipts of tasks; else in objects, of which none is left."""
    if not few:
        monkeypatch.setattr(set_aside, "SetAside", partial(SetAside, few_bytes=100))
    query = Scripted(spark, tmp_path)
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("drop table if exists passed; create table passed (k bigint, ts timestamptz, v bigint)")
        in_parts(query, lambda writer: writer.format("postgresql").option("url", postgres.url).toTable("passed"))
        assert connection.execute("select * from passed").fetchall() == passed(query.fed)
    assert list(LocalStore(query.state).list(filenames.ROWS_PREFIX)) == []


def test_rows_without_a_state_are_in_a_topic_once_and_in_order(
    spark: SparkSession, tmp_path: Path, kafka: KafkaBroker
) -> None:
    query = Scripted(spark, tmp_path)
    topic = KafkaCase({"bootstrap": kafka.bootstrap, "table": "passed", "upsert": ""})
    topic.create()
    in_parts(
        query,
        lambda writer: (
            writer.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap).option("topic", "passed").start()
        ),
    )
    assert [json.loads(value)["v"] for value in topic.values()] == [row[2] for row in passed(query.fed)]
