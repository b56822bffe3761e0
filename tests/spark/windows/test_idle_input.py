"""What ends by time ends without new rows: windows and sessions of silent streams, timers by the clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from support.processes import kill, session_servers, wait_until
from support.queries.simple import SCHEMA, SECOND
from tailrace.testing import ScriptedSource

Rows = list[tuple[Any, ...]]


def rows_at(*seconds: int) -> pa.Table:
    return pa.table(
        [[1] * len(seconds), pa.array([each * SECOND for each in seconds], SCHEMA.field("ts").type), [*seconds]],
        schema=SCHEMA,
    )


class Query:
    """Started again and again on one checkpoint; each epoch's rows are kept, and may come again the same."""

    def __init__(self, path: Path, stream: Callable[[], Any], **options: str) -> None:
        self.path = path
        self.stream = stream
        self.options = options
        self.found: dict[int, Rows] = {}
        self.columns: tuple[str, ...] = ()

    def save(self, batch: DataFrame, epoch: int) -> None:
        table = batch.toArrow()
        rows = sorted(tuple(map(str, row.values())) for row in table.to_pylist())
        assert self.found.setdefault(epoch, rows) == rows, f"epoch {epoch} came again with other rows"

    @property
    def rows(self) -> Rows:
        return [row for rows in self.found.values() for row in rows]

    def start(self) -> Any:
        writer = self.stream().writeStream.foreachBatch(self.save).options(**self.options)
        return writer.option("checkpointLocation", str(self.path / "check")).start()


def test_windows_and_sessions_of_a_silent_stream_end(spark: SparkSession, tmp_path: Path) -> None:
    source = ScriptedSource(tmp_path / "in", SCHEMA)

    def counts() -> Any:
        bids = tr.stream(source.stream(spark)).withWatermark("ts", "1 second")
        return bids.groupBy(tr.window("ts", "3 seconds"), "k").agg(tr.count().alias("n"))

    asked = Query(tmp_path, counts, idleTimeout="2 seconds")
    source.add((rows_at(1000, 1001),))
    query = asked.start()
    try:
        wait_until("the window of 999 to 1002", lambda: len(asked.rows) == 1, 60)
        wait_until("no state", lambda: query.lastProgress["stateOperators"][0]["numRowsTotal"] == 0, 30)
        epochs = query.lastProgress["batchId"]
        source.add((rows_at(1010),))
        wait_until("an epoch with rows", lambda: query.lastProgress["batchId"] > epochs, 30)
        assert sum(kill(server.pid) for server in session_servers()) == 1  # an idle epoch comes again, the same
        wait_until("the window of 1008 to 1011", lambda: len(asked.rows) == 2, 60)
    finally:
        query.stop()
    query = asked.start()  # where nothing is left that could end, there are no epochs without rows
    try:
        wait_until("the first epoch of the run", lambda: query.lastProgress is not None, 60)
        last = query.lastProgress["batchId"]
    finally:
        query.stop()
    assert last <= max(asked.found) and len(asked.rows) == 2


def test_a_silent_stream_does_not_hold_another_back(spark: SparkSession, tmp_path: Path) -> None:
    left, right = ScriptedSource(tmp_path / "left", SCHEMA), ScriptedSource(tmp_path / "right", SCHEMA)

    def unmatched() -> Any:
        one = tr.stream(left.stream(spark)).withWatermark("ts", "0 seconds")
        other = right.stream(spark).withColumnsRenamed({"ts": "at", "v": "w"})
        return one.join(
            tr.stream(other).withWatermark("at", "0 seconds"), "k", "left_outer", within=(None, "2 seconds")
        )

    asked = Query(tmp_path, unmatched, idleTimeout="1 second")
    left.add((rows_at(1000),))
    query = asked.start()
    try:
        wait_until("the first row, without a match", lambda: len(asked.rows) == 1, 60)
    finally:
        query.stop()


def test_a_timer_by_the_clock_comes_up_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    source = ScriptedSource(tmp_path / "in", SCHEMA)

    def remember(rows: pa.Table, state: pa.Table, due: pa.Array) -> tuple[pa.Table, pa.Table]:
        up = state.filter(due).select(["k"])
        kept = state.filter(pc.invert(due))
        soon = pa.repeat(pa.scalar(0, kept["at"].type), len(kept))  # in the next epoch, whenever that is
        fresh = kept.set_column(kept.schema.get_field_index("at"), "at", soon)
        return up, fresh

    def timers() -> Any:
        return (
            tr.stream(source.stream(spark))
            .groupBy("k")
            .process(remember, "k bigint", state="at timestamp", timers="at", timeMode="processingTime")
        )

    asked = Query(tmp_path, timers)
    source.add((rows_at(1000),))
    query = asked.start()
    try:
        wait_until("the timer", lambda: len(asked.rows) >= 1, 60)
    finally:
        query.stop()
