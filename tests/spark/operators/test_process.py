"""A user's function of rows and state through Spark: answers, restarts, timers, chains, errors, and no end at all.

The oracle keeps a dictionary of keys, epoch by epoch.
"""

from __future__ import annotations

import ctypes
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from support.processes import kill, session_server_folders, session_servers, wait_until
from support.queries.engines import tailrace_stream
from support.queries.simple import SCHEMA, SECOND, WINDOWED, batches
from tailrace.testing import ScriptedSource
from tailrace.testing import expected as expected_of_windows

GAP, DELAY = 4 * SECOND, SECOND
STATE = "n bigint, total bigint, until timestamp"
OUTPUT = "k bigint, n bigint, total bigint, until timestamp"
Rows = list[tuple[Any, ...]]


def quiet_keys(rows: pa.Table, state: pa.Table, due: pa.Array) -> tuple[pa.Table, pa.Table]:
    """The sums of a key are emitted and reset when it was quiet for four seconds of event time."""
    sums = rows.group_by("k").aggregate([("v", "sum"), ([], "count_all"), ("ts", "max")])
    at = pc.index_in(state["k"], sums["k"])

    def after(column: str, plus: pa.ChunkedArray) -> pa.ChunkedArray:
        before = pc.if_else(due, pa.scalar(0, pa.int64()), pc.coalesce(state[column], 0))
        return pc.add(before, pc.coalesce(plus.take(at), 0))

    quiet_from = pc.add(sums["ts_max"].cast(pa.int64()), GAP).take(at)
    until = pc.max_element_wise(quiet_from, pc.if_else(due, None, state["until"].cast(pa.int64())))
    going = pa.table(
        {
            "k": state["k"],
            "n": after("n", sums["count_all"]),
            "total": after("total", sums["v_sum"]),
            "until": until.cast(state["until"].type),
        }
    )
    return state.filter(due), going.filter(pc.or_(pc.invert(due), pc.is_valid(at)))


def expected(tables: tuple[pa.Table, ...]) -> list[Rows]:
    """By epoch, the keys that were emitted: (k, n, total, until)."""
    keys: dict[Any, tuple[int, int, int]] = {}
    emitted: list[Rows] = []
    late = mark = -(2**63)
    for table in tables:
        rows = table.set_column(1, "ts", table["ts"].cast(pa.int64())).to_pylist()
        late, mark = mark, max([mark, *(row["ts"] - DELAY for row in rows)])
        due = {key: value for key, value in keys.items() if value[2] <= mark}
        emitted.append(sorted(((key, *value) for key, value in due.items()), key=str))
        keys = {key: value for key, value in keys.items() if key not in due}
        for row in (row for row in rows if row["ts"] >= late):
            n, total, until = keys.get(row["k"], (0, 0, 0))
            keys[row["k"]] = (n + 1, total + row["v"], max(until, row["ts"] + GAP))
    return emitted


class Query:
    """A function over scripted batches, run in parts; a replayed epoch must give the same again."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark = spark
        self.path = path
        self.source = ScriptedSource(path / "in", SCHEMA)
        self.fed: tuple[pa.Table, ...] = ()
        self.output: dict[int, list[dict[str, Any]]] = {}

    def feed(self, tables: tuple[pa.Table, ...]) -> None:
        self.source.add(tables)
        self.fed += tables

    @property
    def keyed(self) -> Any:
        return tr.stream(self.source.stream(self.spark)).withWatermark("ts", "1 second").groupBy("k")

    def processed(self, function: Any = quiet_keys) -> Any:
        return self.keyed.process(function, OUTPUT, state=STATE, timers="until", columns=["v"])

    def start(self, stream: Any, *, available_now: bool, mode: str = "append", **options: str) -> Any:
        def save(batch: DataFrame, epoch: int) -> None:
            rows = batch.toArrow().to_pylist()
            if epoch in self.output:
                assert sorted(map(str, rows)) == sorted(map(str, self.output[epoch]))
            self.output[epoch] = rows

        writer = stream.writeStream.outputMode(mode).foreachBatch(save)
        writer = writer.option("checkpointLocation", str(self.path / "check"))
        for name, value in options.items():
            writer = writer.option(name, value)
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def run(self, stream: Any, **options: str) -> None:
        query = self.start(stream, available_now=True, **options)
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def check(self) -> None:
        found = [
            sorted(
                ((r["k"], r["n"], r["total"], int(r["until"].timestamp() * SECOND)) for r in self.output[epoch]),
                key=str,
            )
            for epoch in range(len(self.fed))
        ]
        wanted = expected(self.fed)
        assert sum(map(len, wanted)) > 7, "the test tells nothing"
        assert found == wanted


def test_quiet_keys_are_emitted_and_begin_anew(spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    query = Query(spark, tmp_path)
    stream = query.processed()
    stream.explain()
    error = capsys.readouterr().out
    assert "Process" in error and "a key is due when until has passed" in error and "store RMW" in error
    every = sparse(batches(10))
    for part in (every[:4], every[4:]):  # with a restart
        query.feed(part)
        query.run(query.processed())
    query.check()


def sparse(tables: tuple[pa.Table, ...]) -> tuple[pa.Table, ...]:
    """Batch i without the keys of a third, so that keys are quiet for a while."""
    made = []
    for number, table in enumerate(tables):
        stays = pc.not_equal(pc.bit_wise_and(pc.coalesce(table["k"], 3), 3), number // 2 % 4)
        made.append(table.filter(stays))
    return tuple(made)


def test_its_output_has_an_event_time_for_windows(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, tmp_path)
    query.feed(sparse(batches(10)))
    emitted = query.keyed.process(quiet_keys, OUTPUT, state=STATE, timers="until", columns=["v"], eventTime="until")
    by_window = emitted.groupBy(tr.window("until", "8 seconds")).agg(tr.sum("n").alias("n"), tr.count().alias("keys"))
    query.run(by_window)
    wanted: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for rows in expected(query.fed):
        for _, n, _, until in rows:
            start = until // (8 * SECOND) * 8 * SECOND
            wanted[start] = [wanted[start][0] + n, wanted[start][1] + 1]
    found = {
        int(row["window"]["start"].timestamp() * SECOND): [row["n"], row["keys"]]
        for rows in query.output.values()
        for row in rows
    }
    assert len(found) > 2 and all(wanted[start] == row for start, row in found.items())


def running(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Of the counts of windows their sum so far, and the last moment of the newest window."""
    assert rows.column_names == ["k", "window", "n"]
    new = rows.group_by("k").aggregate([("n", "sum"), ("window", "max")])
    at = pc.index_in(state["k"], new["k"])
    total = pc.add(pc.coalesce(state["total"], 0), new["n_sum"].take(at))
    made = pa.table({"k": state["k"], "total": total, "at": new["window_max"].take(at)})
    return made, made


@pytest.mark.parametrize("then", ["process", pytest.param("ttl", marks=pytest.mark.long)])
def test_rows_of_windows_go_on(spark: SparkSession, tmp_path: Path, then: str) -> None:
    """To a function, or to a rolling sum that forgets keys."""
    query = Query(spark, tmp_path)
    query.feed(batches(9))
    windows = tailrace_stream(query.source.stream(spark), WINDOWED)
    if then == "process":
        schema = "total bigint, at timestamp"
        query.run(windows.groupBy("k").process(running, f"k bigint, {schema}", state=schema, columns=["n"]))
    else:
        rolling = windows.withStateTtl("1 day").groupBy("k").agg(tr.sum("n").alias("total"), tr.max("n").alias("most"))
        query.run(rolling, mode="update")
    totals: dict[Any, int] = defaultdict(int)
    for epoch in expected_of_windows(spark, WINDOWED, query.fed):
        emitted = {row["k"] for row in epoch.rows.to_pylist()}
        for row in epoch.rows.to_pylist():
            totals[row["k"]] += row["n"]
        assert {(row["k"], row["total"]) for row in query.output[epoch.epoch]} == {(k, totals[k]) for k in emitted}
    assert len(totals) == 8


def test_a_function_that_fails_is_named_and_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    def divides(rows: pa.Table, state: pa.Table, due: pa.Array) -> Any:
        return 1 // 0

    def another_key(rows: pa.Table, state: pa.Table, due: pa.Array) -> Any:
        output, kept = quiet_keys(rows, state, due)
        return output, kept.set_column(0, "k", pc.add(pc.coalesce(kept["k"], 0), 1000))

    query = Query(spark, tmp_path)
    every = sparse(batches(10))
    query.feed(every[:5])
    query.run(query.processed())
    query.feed(every[5:])
    for function, message in (
        (divides, r"operator process, epoch 5: function divides raised ZeroDivisionError(.|\n)*1 // 0"),
        (another_key, r"operator process, epoch 5: function another_key: its state has keys that it was not given"),
    ):
        with pytest.raises(tr.UserFunctionError, match=message):
            query.run(query.processed(function))
    assert sorted(query.output) == list(range(5))
    query.run(query.processed())
    query.check()


def sleeps(rows: pa.Table, state: pa.Table, due: pa.Array) -> Any:
    while True:
        time.sleep(0.01)


def holds_the_interpreter(rows: pa.Table, state: pa.Table, due: pa.Array) -> Any:
    ctypes.PyDLL(None).sleep(600)  # a call into C that keeps the interpreter's lock


def in_window(rows: pa.Table) -> Any:
    while True:
        pass


def nothing_left() -> bool:
    return not session_servers() and not session_server_folders()


@pytest.mark.parametrize(
    "function", [sleeps, pytest.param(holds_the_interpreter, marks=pytest.mark.long)], ids=lambda f: f.__name__
)
def test_a_function_that_never_returns_ends_the_query_and_its_server(
    spark: SparkSession, tmp_path: Path, function: Any
) -> None:
    query = Query(spark, tmp_path)
    query.feed(sparse(batches(10)))
    began = time.monotonic()
    with pytest.raises(tr.UserFunctionError, match=r"operator process, epoch 0: .* within 1\.5 s .*functionTimeout"):
        query.run(query.processed(function), functionTimeout="1500 milliseconds")
    assert time.monotonic() - began < 60, "it waited for something else"
    wait_until("the end of its server", nothing_left, 10)
    assert not query.output
    query.run(query.processed())
    query.check()


@pytest.mark.long
def test_a_function_of_windows_that_never_returns(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, tmp_path)
    query.feed(batches(10))
    windows = (
        tr.stream(query.source.stream(spark)).withWatermark("ts", "1 second").groupBy(tr.window("ts", "5 seconds"))
    )
    with pytest.raises(tr.UserFunctionError, match=r"operator aggregate, epoch \d: function in_window did not return"):
        query.run(windows.applyInWindow(in_window, "n bigint"), functionTimeout="1 second")
    wait_until("the end of its server", nothing_left, 10)


@pytest.mark.long
def test_a_killed_server_loses_no_state_and_no_timer(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, tmp_path)
    every = sparse(batches(10))
    query.feed(every[:5])
    running = query.start(query.processed(), available_now=False)
    try:
        for part in (every[5:7], every[7:]):
            running.processAllAvailable()
            assert sum(kill(server.pid) for server in session_servers()) == 1
            wait_until("the server's end", lambda: not session_servers(), 5)
            query.feed(part)
        running.processAllAvailable()
    finally:
        running.stop()
    query.check()
