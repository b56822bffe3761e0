"""``topN`` through Spark: rolling and over windows, against sorting all that came; chains before and behind it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from support.processes import kill, session_servers, wait_until
from support.queries.scripted_query import SECOND, ScriptedQuery, drawn, plain, watermarks

DELAY = 6 * SECOND
N = 3
WINDOW = 10 * SECOND
Row = dict[str, Any]


def marked(frame: DataFrame) -> Any:
    return tr.stream(frame).withWatermark("ts", "6 seconds")


def ranked(rows: Iterable[Row], n: int = N) -> list[Row]:
    """The largest ``w`` first, then the earliest, then the smallest ``v``; null is the smallest time."""
    return sorted(rows, key=lambda row: (-row["w"], row["ts"] is not None, row["ts"] or 0, row["v"]))[:n]


def shown(key: tuple[Any, ...], best: Sequence[Row]) -> list[tuple[Any, ...]]:
    return [(*key, row["v"], row["w"], rank) for rank, row in enumerate(best, 1)]


# Rolling -------------------------------------------------------------------------------------------------------------


def ask_rolling(frame: DataFrame) -> Any:
    return marked(frame).groupBy("k").topN(N, "w", columns=["v", "w"])


def rolling(tables: Sequence[pa.Table]) -> list[list[tuple[Any, ...]]]:
    """Of each epoch all rows of the keys whose best rows it changed."""
    every: dict[Any, list[Row]] = defaultdict(list)
    emitted = []
    for table in tables:
        before = {key: ranked(rows) for key, rows in every.items()}
        for row in plain(table):
            every[row["k"]].append(row)
        now = {key: ranked(rows) for key, rows in every.items()}
        changed = [key for key, best in now.items() if best != before.get(key)]
        emitted.append(sorted((line for key in changed for line in shown((key,), now[key])), key=repr))
    return emitted


def check_rolling(query: ScriptedQuery) -> None:
    wanted = rolling(query.fed)
    table: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for epoch in range(len(query.fed)):
        assert query.sorted_rows(epoch) == wanted[epoch], f"epoch {epoch}"
        # As a sink does it: by key and rank. No key ever has fewer rows than before, so none stays behind.
        table.update({(row["k"], row["rank"]): tuple(row.values()) for row in query.output[epoch]})
    every: dict[Any, list[Row]] = defaultdict(list)
    for row in (row for each in query.fed for row in plain(each)):
        every[row["k"]].append(row)
    assert sorted(table.values(), key=repr) == sorted(
        (line for key, rows in every.items() for line in shown((key,), ranked(rows))), key=repr
    )


def test_all_rows_of_keys_that_changed(spark: SparkSession, tmp_path: Path) -> None:
    query = ScriptedQuery(spark, tmp_path, ask_rolling, mode="update", files_per_epoch=2)
    tables = drawn(6)
    query.run(tables[:3])
    query.run(tables[3:])
    check_rolling(query)


@pytest.mark.long
@pytest.mark.parametrize("combine", ["on", "off"])
@pytest.mark.parametrize("route", ["direct", "shuffle"])
def test_however_rows_come(spark: SparkSession, tmp_path: Path, route: str, combine: str) -> None:
    query = ScriptedQuery(spark, tmp_path, ask_rolling, mode="update", route=route, combine=combine, memory="32MB")
    query.run(drawn(5))
    check_rolling(query)


@pytest.mark.long
def test_a_killed_server_loses_no_list(spark: SparkSession, tmp_path: Path) -> None:
    query = ScriptedQuery(spark, tmp_path, ask_rolling, mode="update")
    tables = drawn(10)
    query.feed(tables[:5])
    running = query.start()
    try:
        running.processAllAvailable()
        assert sum(kill(server.pid) for server in session_servers()) == 1
        wait_until("the server's end", lambda: not session_servers(), 5)
        query.feed(tables[5:])
        running.processAllAvailable()
    finally:
        running.stop()
    check_rolling(query)


# Windows -------------------------------------------------------------------------------------------------------------


def closed(
    tables: Sequence[pa.Table], of: Callable[[Any, list[Row]], list[Any]], by_key: bool = True
) -> list[list[Any]]:
    """What ``of`` makes of the rows of each window, in the epoch that closes it."""
    every: dict[tuple[int, Any], list[Row]] = defaultdict(list)
    emitted = []
    for table, (late, watermark) in zip(tables, watermarks(tables, DELAY), strict=True):
        for row in plain(table):
            if row["ts"] is not None and (start := row["ts"] // WINDOW * WINDOW) + WINDOW > late:
                every[start, row["k"] if by_key else None].append(row)
        done = [group for group in every if group[0] + WINDOW <= watermark]
        emitted.append(sorted((line for group in done for line in of(group, every.pop(group))), key=repr))
    assert any(emitted), "the test emits nothing"
    return emitted


def ask_windows(frame: DataFrame) -> Any:
    return marked(frame).groupBy("k", tr.window("ts", "10 seconds")).topN(N, "w", columns=["v", "w"])


def test_the_best_of_a_window_when_it_closes(spark: SparkSession, tmp_path: Path) -> None:
    query = ScriptedQuery(spark, tmp_path, ask_windows)
    query.run(drawn(7))
    wanted = closed(query.fed, lambda group, rows: shown((group[1], (group[0], group[0] + WINDOW)), ranked(rows)))
    for epoch in range(len(query.fed)):
        assert query.sorted_rows(epoch) == wanted[epoch], f"epoch {epoch}"


def ask_busiest(frame: DataFrame) -> Any:
    counts = marked(frame).groupBy(tr.window("ts", "10 seconds"), "k").agg(tr.count().alias("n"))
    return counts.groupBy("window").topN(2, ["n", "k"], ascending=[False, True])


def ask_sum_of_best(frame: DataFrame) -> Any:
    return ask_windows(frame).groupBy("window").agg(tr.sum("w").alias("total"), tr.max("rank").alias("deepest"))


@pytest.mark.long
def test_the_best_of_what_was_aggregated(spark: SparkSession, tmp_path: Path) -> None:
    """The two keys with the most rows of each window."""
    query = ScriptedQuery(spark, tmp_path, ask_busiest)
    tables = drawn(8)
    query.run(tables[:4])
    query.run(tables[4:])

    def busiest(group: Any, rows: list[Row]) -> list[Any]:
        counts: dict[Any, int] = defaultdict(int)
        for row in rows:
            counts[row["k"]] += 1
        best = sorted(counts.items(), key=lambda each: (-each[1], each[0] is not None, each[0] or ""))[:2]
        return [((group[0], group[0] + WINDOW), key, n, rank) for rank, (key, n) in enumerate(best, 1)]

    wanted = closed(query.fed, busiest, by_key=False)
    for epoch in range(len(query.fed)):
        assert query.sorted_rows(epoch) == wanted[epoch], f"epoch {epoch}"


@pytest.mark.long
def test_what_is_best_aggregated(spark: SparkSession, tmp_path: Path) -> None:
    query = ScriptedQuery(spark, tmp_path, ask_sum_of_best)
    query.run(drawn(8))

    def best_sum(group: Any, rows: list[Row]) -> list[Any]:
        of_keys: dict[Any, list[Row]] = defaultdict(list)
        for row in rows:
            of_keys[row["k"]].append(row)
        best = [ranked(each) for each in of_keys.values()]
        total = sum((row["w"] for each in best for row in each), Decimal(0))
        return [((group[0], group[0] + WINDOW), total, max(map(len, best)))]

    wanted = closed(query.fed, best_sum, by_key=False)
    for epoch in range(len(query.fed)):
        assert query.sorted_rows(epoch) == wanted[epoch], f"epoch {epoch}"


# Windows that end key by key ------------------------------------------------------------------------------------------


def tens(times: Any) -> Any:
    """The same windows, as a user's own."""
    starts = times.astype("datetime64[us]").astype("int64") // WINDOW * WINDOW
    return starts.astype("datetime64[us]"), (starts + WINDOW).astype("datetime64[us]")


@pytest.mark.long
def test_the_best_of_a_users_window_when_it_closes(spark: SparkSession, tmp_path: Path) -> None:
    def ask(frame: DataFrame) -> Any:
        return marked(frame).groupBy("k", tr.custom_window("ts", tens)).topN(N, "w", columns=["v", "w"])

    query = ScriptedQuery(spark, tmp_path, ask)
    tables = drawn(7)
    query.run(tables[:4])
    query.run(tables[4:])
    wanted = closed(query.fed, lambda group, rows: shown((group[1], (group[0], group[0] + WINDOW)), ranked(rows)))
    for epoch in range(len(query.fed)):
        assert query.sorted_rows(epoch) == wanted[epoch], f"epoch {epoch}"


@pytest.mark.long
def test_the_best_of_so_many_rows(spark: SparkSession, tmp_path: Path) -> None:
    size, slide = 5, 3

    def ask(frame: DataFrame) -> Any:
        return marked(frame).groupBy("k", tr.count_window(size, slide)).topN(N, "w", columns=["v", "w"])

    query = ScriptedQuery(spark, tmp_path, ask)
    tables = drawn(7)
    query.run(tables[:4])
    query.run(tables[4:])
    every: dict[Any, list[Row]] = defaultdict(list)
    for epoch, table in enumerate(tables):
        wanted = []
        for row in sorted(plain(table), key=lambda row: (row["ts"] is not None, row["ts"] or 0, row["v"])):
            rows = every[row["k"]]
            rows.append(row)
            if len(rows) >= size and (len(rows) - size) % slide == 0:
                wanted += shown((row["k"], (len(rows) - size) // slide), ranked(rows[-size:]))
        assert query.sorted_rows(epoch) == sorted(wanted, key=repr), f"epoch {epoch}"
