"""Custom windows, holistic aggregates without a window, and stores that a user chooses, through Spark: the model's
answers across restarts and a lost server, chains, and functions that fail in tasks.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tailrace as tr
from support.operators.window_scenario import Row, Wanted, by_slide, by_time, over_all_time
from support.processes import kill, session_servers, wait_until
from support.queries.simple import SECOND, batches
from support.queries.window_query import WindowQuery

DELAY = 5 * SECOND
Epochs = list[list[Row]]


def shifts(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Seven seconds, then three, then seven again."""
    micros = times.astype(np.int64)
    start = micros // (10 * SECOND) * 10 * SECOND
    late = micros - start >= 7 * SECOND
    starts, ends = np.where(late, start + 7 * SECOND, start), np.where(late, start + 10 * SECOND, start + 7 * SECOND)
    return starts.astype("datetime64[us]"), ends.astype("datetime64[us]")


def shift(time: int) -> tuple[int, int]:
    start = time // (10 * SECOND) * 10 * SECOND
    return (start, start + 7 * SECOND) if time - start < 7 * SECOND else (start + 7 * SECOND, start + 10 * SECOND)


def soon(starts: np.ndarray, ends: np.ndarray, newest: np.ndarray) -> np.ndarray:
    return np.maximum(ends, newest)


def records(stream: Any) -> Any:
    return stream.groupBy(tr.custom_window("ts", shifts), "k").agg(tr.count().alias("n"), tr.sum("v").alias("total"))


def lists(stream: Any) -> Any:
    grouped = stream.groupBy("k", tr.custom_window("ts", shifts, soon))
    return grouped.agg(tr.median("v").alias("middle"), tr.count().alias("n"))


def appended(epochs: Epochs) -> Wanted:
    return by_time(epochs, shift, update=False, delay=DELAY)


def updated(epochs: Epochs) -> Wanted:
    return by_time(epochs, shift, update=True, delay=DELAY)


@pytest.mark.long
def test_records_across_restarts(spark: SparkSession, tmp_path: Path) -> None:
    query = WindowQuery(spark, tmp_path, records, appended, ("n", "total"))
    every = batches(8)
    for part in (every[:3], every[3:]):
        query.feed(part)
        query.run(shards="5")
    assert query.check() > 20


def test_lists_of_rows_in_update_mode(spark: SparkSession, tmp_path: Path) -> None:
    query = WindowQuery(spark, tmp_path, lists, updated, ("middle", "n"), mode="update")
    every = batches(6)
    for part in (every[:4], every[4:]):
        query.feed(part)
        query.run(memory="1MB", readBatchRatio="0.5", maxSpaceAmplification="1.2")
    assert query.check() > 50


@pytest.mark.long
@pytest.mark.parametrize(
    ("ask", "names"), [(records, ("n", "total")), (lists, ("middle", "n"))], ids=["records", "lists"]
)
def test_a_killed_server_loses_nothing(spark: SparkSession, tmp_path: Path, ask: Any, names: tuple[str, ...]) -> None:
    query = WindowQuery(spark, tmp_path, ask, appended, names)
    every = batches(7)
    query.feed(every[:4])
    running = query.writer().start()
    try:
        running.processAllAvailable()
        assert sum(kill(server.pid) for server in session_servers()) == 1
        wait_until("the server's end", lambda: not session_servers(), 5)
        query.feed(every[4:])
        running.processAllAvailable()
    finally:
        running.stop()
    query.check()


def test_windows_follow_by_their_last_moment(spark: SparkSession, tmp_path: Path) -> None:
    def ask(stream: Any) -> Any:
        first = records(stream)
        return first.groupBy(tr.window("window", "20 seconds"), "k").agg(
            tr.sum("total").alias("total"), tr.count().alias("n")
        )

    def model(epochs: Epochs) -> Wanted:
        first = appended(epochs)
        wanted = Wanted([{} for _ in epochs], first.late, first.closing)
        kept: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for epoch, groups in enumerate(first.groups):
            for (key, _, end), rows in groups.items():
                start = (end - 1) // (20 * SECOND) * 20 * SECOND
                kept[key, start, start + 20 * SECOND].append((key, end - 1, sum(r[2] or 0 for r in rows), None))
            for group in [each for each in kept if each[2] <= first.closing[epoch]]:
                wanted.groups[epoch][group] = kept.pop(group)
        return wanted

    query = WindowQuery(spark, tmp_path, ask, model, ("total", "n"))
    query.feed(batches(12))
    query.run()
    assert query.check() > 10


def test_a_function_that_fails_in_a_task_is_named_and_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    broken = ["a while"]

    def ask(stream: Any) -> Any:
        wrong = broken[0]

        def sometimes(times: np.ndarray) -> Any:
            starts, ends = shifts(times)
            if wrong == "later" and times.max() > np.datetime64(1015, "s"):
                return 1 // 0
            return (starts, starts) if wrong == "now" else (starts, ends)

        return stream.groupBy(tr.custom_window("ts", sometimes), "k").agg(tr.count().alias("n"))

    query = WindowQuery(spark, tmp_path, ask, appended, ("n",))
    query.feed(batches(6))
    for when, message in (
        ("now", r"operator aggregate, epoch 0: function sometimes must give each time a window .*start <= time < end"),
        ("later", r"operator aggregate, epoch 2: function sometimes raised ZeroDivisionError(.|\n)*1 // 0"),
    ):
        broken[0] = when
        with pytest.raises(tr.UserFunctionError, match=message) as raised:
            query.run()
        assert "org.apache" not in str(raised.value)
    broken[0] = "never"
    query.run()
    query.check()


def test_holistic_aggregates_without_a_window(spark: SparkSession, tmp_path: Path) -> None:
    def ask(stream: Any) -> Any:
        outputs = (
            tr.median("v").alias("middle"),
            tr.count_distinct("v").alias("different"),
            tr.top_k("v", 2).alias("top"),
        )
        return stream.groupBy("k").agg(*outputs, tr.count().alias("n"))

    names = ("middle", "different", "top", "n")
    query = WindowQuery(spark, tmp_path, ask, over_all_time, names, delay=None, mode="update")
    every = batches(5)
    for part in (every[:3], every[3:]):
        query.feed(part)
        query.run()
    assert query.check() > 30


def test_a_store_that_the_user_chose(spark: SparkSession, tmp_path: Path) -> None:
    def requested(store: str) -> Any:
        def ask(stream: Any) -> Any:
            grouped = stream.groupBy(tr.window("ts", "10 seconds", "5 seconds"), "k").store(store)
            return grouped.agg(tr.sum("v").alias("total"), tr.count().alias("n"))

        return ask

    def model(epochs: Epochs) -> Wanted:
        return by_slide(epochs, 10 * SECOND, 5 * SECOND, 0, update=False, delay=DELAY)

    query = WindowQuery(spark, tmp_path, requested("AUR"), model, ("total", "n"))
    query.feed(batches(7))
    query.run()
    assert query.check() > 10
    query.ask = requested("AAR")
    with pytest.raises(tr.CheckpointError, match="store: was AUR, is now AAR"):
        query.run()


def counted(rows: pa.Table) -> pa.Table:
    """Of each session of a key, how many rows it has."""
    flat = rows.flatten()
    keys = ["session_window.start", "session_window.end", "k"]
    made = flat.group_by(keys).aggregate([([], "count_all")])
    edges = [made[key].combine_chunks() for key in keys[:2]]
    return pa.table(
        {"session_window": pa.StructArray.from_arrays(edges, ["start", "end"]), "k": made["k"], "n": made["count_all"]}
    )


@pytest.mark.long
def test_a_function_of_sessions(spark: SparkSession, tmp_path: Path) -> None:
    def by_function(stream: Any) -> Any:
        return stream.groupBy(tr.session_window("ts", "2 seconds"), "k").applyInWindow(counted, "k bigint, n bigint")

    def by_aggregate(stream: Any) -> Any:
        return stream.groupBy(tr.session_window("ts", "2 seconds"), "k").agg(tr.count().alias("n"))

    found = []
    for name, ask in (("function", by_function), ("aggregate", by_aggregate)):
        query = WindowQuery(spark, tmp_path / name, ask, appended, ("n",))
        query.feed(table.slice(0, 12) for table in batches(8))
        query.run()
        rows = [(e, str(row)) for e, part in query.output.items() for b in part for row in b.to_pylist()]
        found.append(sorted(rows))
    assert found[0] == found[1] and len(found[0]) > 20
