"""An aggregation of an aggregation: every row of the first reaches the second, in the epoch that emits it, once.

The oracle: the first operator's rows by epoch from ``tailrace.testing``, aggregated again in plain Python.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from support.processes import kill, session_servers, wait_until
from support.queries.engines import tailrace_stream
from support.queries.simple import SCHEMA, SECOND, WINDOWED, batches
from tailrace.testing import ScriptedSource, expected

HOUR_LIKE = 20 * SECOND
Rows = list[dict[str, Any]]


def micros(row: dict[str, Any], edge: str) -> int:
    return int(row["window"][edge].timestamp() * SECOND)


def by_window(first: list[Rows], closing: list[int | None]) -> list[set[tuple[Any, ...]]]:
    """What ``groupBy("window")`` must emit: in each epoch the windows that closed in it."""
    emitted = []
    for rows in first:
        groups: dict[tuple[int, int], Rows] = defaultdict(list)
        for row in rows:
            groups[micros(row, "start"), micros(row, "end")].append(row)
        emitted.append(
            {
                (*window, max(r["n"] for r in group), len(group), float(median(r["n"] for r in group)))
                for window, group in groups.items()
            }
        )
    return emitted


def by_longer_window(first: list[Rows], closing: list[int | None]) -> list[set[tuple[Any, ...]]]:
    """Windows of twenty seconds over the last moment of the rows' own, by key."""
    groups: dict[tuple[int, Any], int] = defaultdict(int)
    emitted: list[set[tuple[Any, ...]]] = []
    for rows, watermark in zip(first, closing, strict=True):
        for row in rows:
            time = micros(row, "end") - 1
            groups[time - time % HOUR_LIKE, row["k"]] += row["n"]
        done = [key for key in groups if watermark is not None and key[0] + HOUR_LIKE <= watermark]
        emitted.append({(start, k, groups.pop((start, k))) for start, k in done})
    return emitted


def ask_by_window(first: Any) -> Any:
    return first.groupBy("window").agg(tr.max("n").alias("best"), tr.count().alias("keys"), tr.median("n").alias("mid"))


def ask_by_longer_window(first: Any) -> Any:
    return first.groupBy(tr.window("window", "20 seconds"), "k").agg(tr.sum("n").alias("n"))


CHAINS = pytest.mark.parametrize(
    ("ask", "answer"),
    [(ask_by_window, by_window), (ask_by_longer_window, by_longer_window)],
    ids=["the same window", "a longer window"],
)


class Chain:
    def __init__(self, spark: SparkSession, path: Path, ask: Callable[[Any], Any]) -> None:
        self.spark = spark
        self.path = path
        self.ask = ask
        self.source = ScriptedSource(path / "in", SCHEMA)
        self.fed: tuple[pa.Table, ...] = ()
        self.output: dict[int, Rows] = {}

    def feed(self, tables: tuple[pa.Table, ...]) -> None:
        self.source.add(tables)
        self.fed += tables

    def start(self, available_now: bool) -> Any:
        def save(batch: DataFrame, epoch: int) -> None:
            rows = batch.toArrow().to_pylist()
            if epoch in self.output:  # replayed
                assert sorted(map(str, rows)) == sorted(map(str, self.output[epoch]))
            self.output[epoch] = rows

        stream = self.ask(tailrace_stream(self.source.stream(self.spark), WINDOWED))
        writer = stream.writeStream.foreachBatch(save).option("checkpointLocation", str(self.path / "check"))
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def run(self) -> None:
        query = self.start(available_now=True)
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def check(self, answer: Callable[[list[Rows], list[int | None]], list[set[tuple[Any, ...]]]]) -> None:
        epochs = expected(self.spark, WINDOWED, self.fed)
        wanted = answer([epoch.rows.to_pylist() for epoch in epochs], [epoch.closing_watermark for epoch in epochs])
        assert any(wanted), "the test emits nothing"
        found = [self._plain(self.output[epoch]) for epoch in range(len(epochs))]
        assert found == wanted

    def _plain(self, rows: Rows) -> set[tuple[Any, ...]]:
        if self.ask is ask_by_window:
            made = [(micros(r, "start"), micros(r, "end"), r["best"], r["keys"], r["mid"]) for r in rows]
        else:
            made = [(micros(r, "start"), r["k"], r["n"]) for r in rows]
        assert len(set(made)) == len(made), "a row was emitted twice"
        return set(made)


@CHAINS
def test_every_row_reaches_the_second_operator_once(
    spark: SparkSession, tmp_path: Path, ask: Callable[[Any], Any], answer: Any
) -> None:
    chain = Chain(spark, tmp_path, ask)
    every = batches(12)
    for part in (every[:5], every[5:]):  # with a restart
        chain.feed(part)
        chain.run()
    chain.check(answer)


def test_a_killed_server_loses_no_operator(spark: SparkSession, tmp_path: Path) -> None:
    chain = Chain(spark, tmp_path, ask_by_longer_window)
    every = batches(12)
    chain.feed(every[:6])
    running = chain.start(available_now=False)
    try:
        running.processAllAvailable()
        assert sum(kill(server.pid) for server in session_servers()) == 1
        wait_until("the server's end", lambda: not session_servers(), 5)
        chain.feed(every[6:])
        running.processAllAvailable()
    finally:
        running.stop()
    chain.check(by_longer_window)


def test_what_cannot_be_chained_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    source = ScriptedSource(tmp_path / "in", SCHEMA)
    source.add(batches(1))
    stream = tr.stream(source.stream(spark))
    with pytest.raises(tr.AnalysisError, match="rows are final: give it a window"):
        stream.groupBy("k").agg(tr.count()).groupBy("k")
    counts = stream.withWatermark("ts", "1 second").groupBy(tr.window("ts", "5 seconds"), "k").agg(tr.count())
    with pytest.raises(tr.AnalysisError, match="is the window that rows come from"):
        counts.groupBy("window").agg(tr.max("window"))
