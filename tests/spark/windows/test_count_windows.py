"""Windows by count through Spark: the model's answers, across restarts, a lost server and in chains."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import tailrace as tr
from support.operators.window_scenario import Row, Wanted, by_count
from support.processes import kill, session_servers, wait_until
from support.queries.simple import SECOND, batches
from support.queries.window_query import WindowQuery, rows_of

SIZE = 4
Epochs = list[list[Row]]


def records(stream: Any) -> Any:
    return stream.groupBy("k", tr.count_window(SIZE)).agg(tr.count().alias("n"), tr.sum("v").alias("total"))


def lists(stream: Any) -> Any:
    middle = tr.median("v").alias("middle")
    return stream.groupBy(tr.count_window(SIZE), "k").agg(middle, tr.last("v").alias("newest"), tr.count().alias("n"))


def appended(epochs: Epochs) -> Wanted:
    return by_count(epochs, SIZE, update=False)


def updated(epochs: Epochs) -> Wanted:
    return by_count(epochs, SIZE, update=True)


def test_records_across_restarts(spark: SparkSession, tmp_path: Path) -> None:
    query = WindowQuery(spark, tmp_path, records, appended, ("n", "total"), delay=None)
    every = batches(7)
    for part in (every[:3], every[3:]):
        query.feed(part)
        query.run(shards="5")
    assert query.check() > 50
    assert query.progress.state_rows == 8, "one record a key"


@pytest.mark.long
@pytest.mark.parametrize("mode", ["append", "update"])
def test_windows_that_overlap(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    """In append mode on records, else on rows."""
    totals = [tr.count().alias("n"), tr.sum("v").alias("total")]
    complete = [tr.median("v").alias("middle")] if mode == "update" else []

    def requested(stream: Any) -> Any:
        return stream.groupBy("k", tr.count_window(6, 4)).agg(*totals, *complete)

    def wanted(epochs: Epochs) -> Wanted:
        return by_count(epochs, 6, slide=4, update=mode == "update")

    names = ("n", "total", *(("middle",) if complete else ()))
    query = WindowQuery(spark, tmp_path, requested, wanted, names, mode=mode)
    every = batches(7)
    for part in (every[:3], every[3:]):
        query.feed(part)
        query.run(memory="1MB")
    assert query.check() > 50


@pytest.mark.long
def test_lists_of_rows_in_update_mode(spark: SparkSession, tmp_path: Path) -> None:
    query = WindowQuery(spark, tmp_path, lists, updated, ("middle", "newest", "n"), mode="update")
    every = batches(6)
    for part in (every[:4], every[4:]):
        query.feed(part)
        query.run(memory="1MB", route="shuffle")
    assert query.check() > 50


@pytest.mark.long
@pytest.mark.parametrize(
    ("ask", "names"), [(records, ("n", "total")), (lists, ("middle", "newest", "n"))], ids=["records", "lists"]
)
def test_a_killed_server_loses_nothing(spark: SparkSession, tmp_path: Path, ask: Any, names: tuple[str, ...]) -> None:
    query = WindowQuery(spark, tmp_path, ask, appended, names)
    every = batches(6)
    query.feed(every[:3])
    running = query.writer().start()
    try:
        running.processAllAvailable()
        assert sum(kill(server.pid) for server in session_servers()) == 1
        wait_until("the server's end", lambda: not session_servers(), 5)
        query.feed(every[3:])
        running.processAllAvailable()
    finally:
        running.stop()
    query.check()


def spread(rows: pa.Table) -> pa.Table:
    """Of each window of a key, its number of rows and the distance of its values."""
    made = rows.group_by(["window", "k"]).aggregate([([], "count_all"), ("v", "min"), ("v", "max")])
    wide = pc.subtract(made["v_max"], made["v_min"])
    return pa.table({"window": made["window"], "k": made["k"], "n": made["count_all"], "wide": wide})


@pytest.mark.long
def test_a_function_of_windows(spark: SparkSession, tmp_path: Path) -> None:
    def ask(stream: Any) -> Any:
        grouped = stream.groupBy("k", tr.count_window(SIZE))
        return grouped.applyInWindow(spread, "k bigint, n bigint, wide bigint", columns=["v"])

    query = WindowQuery(spark, tmp_path, ask, appended, ("n",), delay=None)
    query.feed(batches(5))
    query.run()
    query.check()
    epochs = [rows_of(table, timed=False) for table in query.fed]
    windows = {key: rows for epoch in appended(epochs).groups for key, rows in epoch.items()}
    wanted = {key: max(r[2] or 0 for r in rows) - min(r[2] or 0 for r in rows) for key, rows in windows.items()}
    found = [row for batches_ in query.output.values() for batch in batches_ for row in batch.to_pylist()]
    assert {(row["k"], row["window"]): row["wide"] for row in found} == wanted


@pytest.mark.parametrize("best", [False, pytest.param(True, marks=pytest.mark.long)], ids=["sums", "best rows"])
def test_windows_of_event_time_follow(spark: SparkSession, tmp_path: Path, best: bool) -> None:
    """Ten seconds over the largest event time of each four rows of a key; late rows are left out."""

    def ask(stream: Any) -> Any:
        fours = stream.groupBy("k", tr.count_window(SIZE, eventTime="at"))
        first = fours.topN(1, "v", columns=["v"]) if best else fours.agg(tr.sum("v").alias("v"))
        return first.groupBy(tr.window("at", "10 seconds"), "k").agg(tr.sum("v").alias("total"), tr.count().alias("n"))

    def model(epochs: Epochs) -> Wanted:
        first = by_count(epochs, SIZE, update=False, in_time=True, delay=5 * SECOND)
        wanted = Wanted([{} for _ in epochs], first.late, first.closing)
        kept: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for epoch, groups in enumerate(first.groups):
            for (key, _), rows in groups.items():
                at = max(row[1] or 0 for row in rows)
                start = at // (10 * SECOND) * 10 * SECOND
                made = (max if best else sum)([row[2] or 0 for row in rows])
                kept[key, start, start + 10 * SECOND].append((key, at, made, None))
            for group in [each for each in kept if each[2] <= first.closing[epoch]]:
                wanted.groups[epoch][group] = kept.pop(group)
        return wanted

    query = WindowQuery(spark, tmp_path, ask, model, ("total", "n"))
    tables = list(batches(9))
    tables[6] = batches(2)[0]  # all of it long past
    query.feed(tables)
    query.run()
    assert query.check() > 10
