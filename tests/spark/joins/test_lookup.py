"""Streams joined with lookup tables, through Spark: rows, windows behind them, tables that go away, secrets."""

from __future__ import annotations

import contextlib
import io
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from support.processes import kill, session_servers, wait_until
from support.queries.scripted_query import SECOND, ScriptedQuery, drawn, plain, watermarks
from tailrace.errors import AnalysisError, TableError
from tailrace.lab.servers.redis import RedisServer
from tailrace.operators.lookup.redis.connection import RedisAddress, RedisConnection

DELAY = 6 * SECOND
COLORS = {f"{word} {n}": f"color {n % 3}" for word in ("key", "late") for n in range(9)}
"""Keys of the stream are numbered from 0 to 11, or null."""


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer(password=True, durable=True) as server:
        line = RedisConnection(RedisAddress("127.0.0.1", server.port, 0, False, 5.0, "", server.password))
        for key, color in COLORS.items():
            words = [b"SET", b"color:" + key.encode(), color.encode()]
            line._send(b"*3\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
            line._receive(1, 1)
        line.close()
        yield server


def colored(table: Any, how: str = "inner") -> Any:
    def ask(frame: DataFrame) -> Any:
        met = tr.stream(frame).withWatermark("ts", "6 seconds").join(table, "k", how)
        return met.groupBy(tr.window("ts", "10 seconds"), "color").agg(
            tr.count().alias("n"), tr.sum("v").alias("total")
        )

    return ask


def expected(tables: Sequence[pa.Table], outer: bool = False) -> list[list[Any]]:
    """Counts and sums by window and color, in the epoch that closes the window; late rows as without a table."""
    groups: dict[tuple[int, str | None], list[int]] = defaultdict(list)
    out = []
    for table, (late_before, watermark) in zip(tables, watermarks(tables, DELAY), strict=True):
        for row in plain(table):
            if row["ts"] is None or (not outer and row["k"] not in COLORS):
                continue
            start = row["ts"] // (10 * SECOND) * 10 * SECOND
            if start + 10 * SECOND > late_before:
                groups[start, COLORS.get(row["k"])].append(row["v"])
        done = [key for key in groups if key[0] + 10 * SECOND <= watermark]
        out.append(sorted(((*key, len(v), sum(v)) for key, v in ((key, groups.pop(key)) for key in done)), key=repr))
    assert any(out), "the test emits nothing"
    return out


def check(scripted: ScriptedQuery, outer: bool = False) -> None:
    for epoch, wanted in enumerate(expected(scripted.fed, outer)):
        found = [(row["window"][0], row["color"], row["n"], row["total"]) for row in scripted.output[epoch]]
        assert sorted(found, key=repr) == wanted, f"epoch {epoch}"


def refuse_secret(scripted: ScriptedQuery, secret: str) -> None:
    """Nobody who looks at processes, files or plans sees it."""
    for process in psutil.process_iter(["cmdline", "environ"]):
        shown = [*(process.info["cmdline"] or ()), *(process.info["environ"] or {}).values()]
        assert not any(secret in word for word in shown), process
    for file in scripted.path.rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes(), file


def test_redis_goes_and_comes_back(spark: SparkSession, tmp_path: Path, redis: RedisServer) -> None:
    """Killed in the middle of a run: the query fails or waits, as its option says, and its rows are right."""
    tables = drawn(6)
    # Keys that nobody has seen before it is killed: of others, servers have copies.
    unseen = [table.set_column(0, "k", pc.replace_substring(table["k"], "key", "late")) for table in tables[2:]]

    def table(**how: str) -> Any:
        return tr.table.redis(redis.url, "k", "color string", prefix="color:", **how)

    scripted = ScriptedQuery(spark, tmp_path, colored(table(onConnectionLoss="fail"), "left_outer"))
    scripted.feed(tables[:2])
    query = scripted.start()
    try:
        wait_until("two epochs", lambda: len(scripted.output) == 2 or not query.isActive, 60)
        refuse_secret(scripted, redis.password)
        redis.kill()
        scripted.feed(unseen)
        with pytest.raises(TableError, match=r"127.0.0.1:\d+/0.* cannot be reached.*start the query again") as refused:
            query.awaitTermination(60)
    finally:
        query.stop()
    assert redis.password not in str(refused.value)
    assert sorted(scripted.output) == [0, 1]
    scripted.ask = colored(table(retry="60 seconds"), "left_outer")
    query = scripted.start(available_now=True)
    try:
        assert not query.awaitTermination(1)
        redis.restart()
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            query.explain()
        assert "Redis 127.0.0.1" in text.getvalue() and redis.password not in text.getvalue()
        query.awaitTermination()
        first = query.lastProgress["stateOperators"][0]
        reported = first["customMetrics"]
        assert first["operatorKind"] == "lookup join" and reported["spilledHits"] + reported["spilledMisses"] > 0
    finally:
        query.stop()
    check(scripted, outer=True)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["parquet", "dbapi"])
@pytest.mark.parametrize("prefetch", ["on", "off", "async-io"])
def test_other_tables(spark: SparkSession, tmp_path: Path, backend: str, prefetch: str) -> None:
    if backend == "parquet":
        columns = {"K": list(COLORS), "color": list(COLORS.values()), "unused": [1] * len(COLORS)}
        pq.write_table(pa.table(columns), tmp_path / "colors.parquet")
        table = tr.table.parquet(str(tmp_path / "colors.parquet"), "k", columns=["color"])
    else:
        path = str(tmp_path / "colors.db")
        with sqlite3.connect(path) as base:
            base.execute("create table colors (k, color)")
            base.executemany("insert into colors values (?, ?)", COLORS.items())
        base.close()
        query = "select k, color from colors where k in ({keys})"
        table = tr.table.dbapi(lambda: sqlite3.connect(path, check_same_thread=False), query, "k", "color string")
    scripted = ScriptedQuery(spark, tmp_path, colored(table), files_per_epoch=2, prefetch=prefetch)
    tables = drawn(8)
    scripted.run(tables[:4])
    scripted.run(tables[4:])
    check(scripted)


@pytest.mark.long
def test_rows_alone_and_behind_dropped_duplicates(spark: SparkSession, tmp_path: Path, redis: RedisServer) -> None:
    """The first operator of a query, its last one, and both: every row once, in the epoch in which it came."""
    table = tr.table.redis(redis.url, "k", "color string", prefix="color:")

    def ask(frame: DataFrame) -> Any:
        distinct = tr.stream(frame).join(table, "k", "left_outer").dropDuplicates(["v"])
        again = tr.table.redis(redis.url, "k", "again string", prefix="color:")
        return distinct.join(again, "k")

    scripted = ScriptedQuery(spark, tmp_path, ask)
    scripted.run(drawn(3))
    for epoch, batch in enumerate(scripted.fed):
        wanted = [(*row.values(), COLORS[row["k"]], COLORS[row["k"]]) for row in plain(batch) if row["k"] in COLORS]
        assert scripted.sorted_rows(epoch) == sorted(wanted, key=repr)


def test_tables_that_cannot_be_asked_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": ["a"], "v": [1], "n": [[1]]}), tmp_path / "t.parquet")
    stream = tr.stream(ScriptedQuery(spark, tmp_path, lambda frame: frame).source.stream(spark)).withWatermark(
        "ts", "1 second"
    )
    redis_table = tr.table.redis("redis://localhost", "k", "color string")
    for join, message in (
        (lambda: stream.join(redis_table, "v"), "asked by its key, which is k"),
        (lambda: stream.join(redis_table, "k", "right"), "how must be 'inner' or 'left_outer'"),
        (lambda: stream.join(tr.table.redis("redis://h", "ts", "x string"), "ts"), "no one text to be a key of Redis"),
        (lambda: stream.join(tr.table.redis("redis://h", "k", "v bigint"), "k"), "two output columns"),
        (lambda: stream.join(tr.table.redis("redis://h", "k", "k string"), "k"), "no column beside its key"),
        (lambda: stream.join(tr.table.redis("redis://h", "k", "a int, b int", layout="string"), "k"), "layout='hash'"),
        (lambda: stream.join(tr.table.redis("redis://h", "k", "a array<int>"), "k"), "cannot be passed on"),
        (lambda: stream.join(tr.table.parquet(str(tmp_path / "t.parquet"), "v"), "v"), "cannot be passed on"),
        (lambda: stream.join(tr.table.parquet(str(tmp_path / "t.parquet"), "id"), "id"), "there is no column 'id'"),
        (lambda: stream.join(tr.table.parquet(str(tmp_path / "no"), "k"), "k"), "cannot be read"),
        (lambda: stream.join(redis_table, "k", ttl="1 hour"), "are for two streams"),
        (lambda: stream.groupBy("k").agg(tr.count()).join(redis_table, "k"), "once its rows are final"),
        (
            lambda: stream.groupBy(tr.window("ts", "1 second"), "k").agg(tr.count()).join(redis_table, "k"),
            "come with a window",
        ),
    ):
        with pytest.raises(AnalysisError, match=message):
            join()


@pytest.mark.long
def test_a_query_that_waits_for_its_table_can_be_stopped(
    spark: SparkSession, tmp_path: Path, redis: RedisServer
) -> None:
    redis.kill()
    table = tr.table.redis(redis.url, "k", "color string", prefix="color:", retry="10 minutes")
    scripted = ScriptedQuery(spark, tmp_path, colored(table))
    scripted.feed(drawn(2))
    query = scripted.start()
    assert not query.awaitTermination(5)
    began = time.monotonic()
    query.stop()
    assert time.monotonic() - began < 60, "it waited for the table"
    assert not scripted.output
    redis.restart()
    scripted.run(drawn(4))
    check(scripted)


@pytest.mark.long
def test_a_server_that_is_lost_has_nothing_to_lose(spark: SparkSession, tmp_path: Path, redis: RedisServer) -> None:
    """Killed in the middle of a run: the epoch gets another try, in a server whose cache is empty."""
    table = tr.table.redis(redis.url, "k", "color string", prefix="color:")
    scripted = ScriptedQuery(spark, tmp_path, colored(table, "left_outer"))
    scripted.feed(drawn(3))
    query = scripted.start()
    try:
        wait_until("three epochs", lambda: len(scripted.output) == 3 or not query.isActive, 120)
        for server in session_servers():
            kill(server.pid)
        scripted.feed(drawn(4))
        wait_until("seven epochs", lambda: len(scripted.output) == 7 or not query.isActive, 120)
    finally:
        query.stop()
    check(scripted, outer=True)


@pytest.mark.long
def test_spark_joins_and_closes_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Against Spark's own join with a static table and its own windows, late rows included, epoch by epoch."""
    columns = {"k": list(COLORS), "color": list(COLORS.values())}
    pq.write_table(pa.table(columns), tmp_path / "colors.parquet")
    path = str(tmp_path / "colors.parquet")

    def theirs(frame: DataFrame) -> DataFrame:
        met = frame.withWatermark("ts", "6 seconds").join(spark.read.parquet(path), "k", "left")
        return met.groupBy(F.window("ts", "10 seconds"), "color").agg(
            F.count(F.lit(1)).alias("n"), F.sum("v").alias("total")
        )

    tables = drawn(8)
    own = ScriptedQuery(spark, tmp_path / "own", colored(tr.table.parquet(path, "k"), "left"), watermark="spark")
    other = ScriptedQuery(spark, tmp_path / "other", theirs)
    for each in (own, other):
        each.run(tables)
    assert any(own.sorted_rows(epoch) for epoch in range(8))
    for epoch in range(8):
        assert own.sorted_rows(epoch) == other.sorted_rows(epoch), f"epoch {epoch}"
    dropped = [sum(int(o["numRowsDroppedByWatermark"]) for o in report["stateOperators"]) for report in own.progress]
    assert sum(dropped) > 0
