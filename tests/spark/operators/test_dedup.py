"""``dropDuplicates`` through Spark: against Spark's own operator, and against a dictionary; chains behind it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from support.models.dedup import DeduplicateModel
from support.processes import kill, session_servers, wait_until
from support.queries.scripted_query import NO_WATERMARK, SCHEMA, SECOND, ScriptedQuery, drawn, plain, watermarks

DELAY = 6 * SECOND
K, TS, V = 0, 1, 2
KINDS = {
    "within": (lambda stream: stream.dropDuplicatesWithinWatermark(["k"]), [K], True),
    "time among keys": (lambda stream: stream.dropDuplicates(["k", "ts"]), [K, TS], False),
    "for ever": (lambda stream: stream.dropDuplicates(["k"]), [K], False),
}
LONG = pytest.mark.long


def with_doubles(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Every third batch repeats rows of the one before, some of them late by then."""
    return [
        table if number % 3 != 2 else pa.concat_tables([tables[number - 1].slice(0, 15), table]).combine_chunks()
        for number, table in enumerate(tables)
    ]


def marked(frame: DataFrame) -> Any:
    return tr.stream(frame).withWatermark("ts", "6 seconds")


def expected(kind: str, tables: Sequence[pa.Table], rule: str = "tailrace") -> tuple[list[Any], DeduplicateModel]:
    _, keys, within = KINDS[kind]
    model = DeduplicateModel(keys, TS, within=within, delay=DELAY)
    rows = [[tuple(row.values()) for row in plain(table)] for table in tables]
    marks = watermarks(tables, DELAY, rule)
    return [model.epoch([batch], *mark) for batch, mark in zip(rows, marks, strict=True)], model


@pytest.mark.parametrize("kind", ["within", *(pytest.param(name, marks=LONG) for name in list(KINDS)[1:])])
def test_spark_drops_the_same_rows(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    ask = KINDS[kind][0]
    # Rows of a batch come by their time: Spark keeps the first that comes, Tailrace the earliest.
    tables = [table.sort_by("ts") for table in with_doubles(drawn(7))]
    # Spark takes a row without an event time for one of 1970: before the first watermark it remembers its key.
    tables[0] = tables[0].filter(pc.is_valid(tables[0]["ts"]))
    ours = ScriptedQuery(spark, tmp_path / "ours", lambda frame: ask(marked(frame)), watermark="spark")
    theirs = ScriptedQuery(spark, tmp_path / "theirs", lambda frame: ask(frame.withWatermark("ts", "6 seconds")))
    for each in (ours, theirs):
        each.run(tables)
    wanted, model = expected(kind, tables, "spark")
    for epoch in range(len(tables)):
        assert ours.sorted_rows(epoch) == theirs.sorted_rows(epoch) == sorted(wanted[epoch], key=repr), f"epoch {epoch}"
    reports = [report["stateOperators"][0] for report in ours.progress]
    assert sum(int(report["numRowsDroppedByWatermark"]) for report in reports) == model.late > 0
    if kind == "for ever":
        assert reports[-1]["numRowsTotal"] == len(model.remembered)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_restart_and_several_tasks_change_nothing(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    ask = KINDS[kind][0]
    query = ScriptedQuery(spark, tmp_path, lambda frame: ask(marked(frame)), files_per_epoch=2, memory="32MB")
    tables = with_doubles(drawn(8))
    query.run(tables[:4])
    query.run(tables[4:])
    wanted, _ = expected(kind, tables)
    for epoch in range(len(tables)):
        assert query.sorted_rows(epoch) == sorted(wanted[epoch], key=repr), f"epoch {epoch}"


def windows_of(kind: str, tables: Sequence[pa.Table]) -> list[list[Any]]:
    """What windows of ten seconds over the rows that are left must emit: (start, rows, sum)."""
    rows, _ = expected(kind, tables)
    sums: dict[int, list[int]] = defaultdict(list)
    emitted = []
    for batch, (_, watermark) in zip(rows, watermarks(tables, DELAY), strict=True):
        for row in batch:
            if row[TS] is not None:
                sums[row[TS] // (10 * SECOND) * 10 * SECOND].append(row[V])
        done = [start for start in sums if start + 10 * SECOND <= watermark]
        emitted.append(sorted((start, len(values), sum(values)) for start, values in ((s, sums.pop(s)) for s in done)))
    return emitted


def asked_windows(kind: str) -> Any:
    def ask(frame: DataFrame) -> Any:
        distinct = KINDS[kind][0](marked(frame))
        return distinct.groupBy(tr.window("ts", "10 seconds")).agg(tr.count().alias("n"), tr.sum("v").alias("total"))

    return ask


def check_windows(query: ScriptedQuery, kind: str) -> None:
    wanted = windows_of(kind, query.fed)
    assert any(wanted), "the test emits nothing"
    for epoch in range(len(query.fed)):
        found = sorted((row["window"][0], row["n"], row["total"]) for row in query.output[epoch])
        assert found == wanted[epoch], f"epoch {epoch}"


@pytest.mark.parametrize("kind", [pytest.param(name, marks=() if name == "within" else LONG) for name in KINDS])
def test_windows_of_what_is_left(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Every row that is no duplicate reaches the windows, in the epoch in which it came, once."""
    query = ScriptedQuery(spark, tmp_path, asked_windows(kind))
    tables = with_doubles(drawn(8))
    query.run(tables[:4])
    query.run(tables[4:])
    check_windows(query, kind)


@pytest.mark.long
def test_a_killed_server_forgets_no_key(spark: SparkSession, tmp_path: Path) -> None:
    query = ScriptedQuery(spark, tmp_path, asked_windows("within"))
    tables = with_doubles(drawn(12))
    query.feed(tables[:6])
    running = query.start()
    try:
        running.processAllAvailable()
        assert sum(kill(server.pid) for server in session_servers()) == 1
        wait_until("the server's end", lambda: not session_servers(), 5)
        query.feed(tables[6:])
        running.processAllAvailable()
    finally:
        running.stop()
    check_windows(query, "within")


@pytest.mark.long
@pytest.mark.parametrize("route", ["direct", "shuffle"])
@pytest.mark.parametrize("combine", ["on", "off"])
def test_without_a_watermark_keys_stay(spark: SparkSession, tmp_path: Path, route: str, combine: str) -> None:
    """Nothing but their order distinguishes the rows of an epoch, so they are all alike here."""
    tables = [
        pa.table([table["k"], *(pa.nulls(table.num_rows, field.type) for field in list(SCHEMA)[1:])], schema=SCHEMA)
        for table in drawn(5)
    ]
    query = ScriptedQuery(
        spark, tmp_path, lambda frame: tr.stream(frame).dropDuplicates(), route=route, combine=combine
    )
    query.run(tables)
    model = DeduplicateModel([0, 1, 2, 3], None, within=False)
    for epoch, table in enumerate(tables):
        rows = [tuple(row.values()) for row in plain(table)]
        assert query.sorted_rows(epoch) == sorted(model.epoch([rows], NO_WATERMARK, NO_WATERMARK), key=repr)
