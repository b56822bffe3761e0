"""Late rows as a second output: each once, whatever fails; the query's own rows are what they were."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from support.processes import session_servers
from support.queries.engines import tailrace_stream
from support.queries.simple import SCHEMA, SECOND, SUMS, WINDOWED, Scripted
from tailrace.testing import Question, Windows
from tailrace.testing.lateness import judge

TUMBLING = Question(("k",), SUMS, Windows(10 * SECOND, 10 * SECOND), "ts", 2 * SECOND)


def batches(count: int, rows: int = 60) -> tuple[pa.Table, ...]:
    """Event time goes on by 7 seconds a batch; one row in five is far behind, one in eleven has no time."""
    made = []
    for epoch in range(count):
        numbers = range(epoch * rows, (epoch + 1) * rows)
        times = [None if n % 11 == 0 else 1000 + 7 * epoch + n % 7 - (30 if n % 5 == 0 else 0) for n in numbers]
        columns = [[n % 7 for n in numbers], [None if t is None else t * SECOND for t in times], list(numbers)]
        made.append(pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA))
    return tuple(made)


Rows = list[tuple[Any, ...]]


def wanted(question: Question, tables: tuple[pa.Table, ...]) -> dict[int, Rows]:
    """By epoch (k, ts, v, reason) of each row that counts in no window."""
    times = [table["ts"].cast(pa.int64()).to_pylist() for table in tables]
    counted = {(each.epoch, each.row) for each in judge(question, times).contributions}
    out: dict[int, Rows] = {}
    for epoch, table in enumerate(tables):
        values = zip(table["k"].to_pylist(), times[epoch], table["v"].to_pylist(), strict=True)
        out[epoch] = sorted(
            ((k, time, v, "no event time" if time is None else "late") for row, (k, time, v) in enumerate(values)
             if (epoch, row) not in counted),
            key=lambda row: row[2],
        )  # fmt: skip
    return out


def rows_of(table: pa.Table) -> Rows:
    assert table.schema.names == ["k", "ts", "v", "tailrace_reason"]
    columns = [table["k"], table["ts"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()), table["v"], table[3]]
    return sorted(zip(*(column.to_pylist() for column in columns), strict=True), key=lambda row: row[2])


class LateSink:
    """Keeps an epoch's rows; those of a replay must be the same."""

    def __init__(self) -> None:
        self.epochs: dict[int, Rows] = {}
        self.calls: list[int] = []

    def save(self, rows: DataFrame, epoch: int) -> None:
        self.calls.append(epoch)
        found = rows_of(rows.toArrow())
        assert rows.count() == len(found), "it can be read again"
        assert self.epochs.get(epoch, found) == found
        self.epochs[epoch] = found


def start(query: Scripted, frame: DataFrame | None = None, **late: Any) -> Any:
    stream = tailrace_stream(query.frame() if frame is None else frame, query.question)
    writer = stream.writeStream.outputMode(query.question.output_mode).foreachBatch(query.output.save)
    writer = writer.lateRows(late.pop("func", None), **late)
    return writer.option("checkpointLocation", str(query.checkpoint)).trigger(availableNow=True).start()


def run(query: Scripted, frame: DataFrame | None = None, **late: Any) -> None:
    started = start(query, frame, **late)
    try:
        started.awaitTermination()
        query.output.progress += started.recentProgress
    finally:
        started.stop()


def check(query: Scripted, got: dict[int, Rows]) -> None:
    query.check()
    want = wanted(query.question, query.fed)
    assert sum(map(len, want.values())) > len(query.fed), "nothing is late: the test shows nothing"
    assert got == {epoch: rows for epoch, rows in want.items() if rows}
    late = query.state / "late"
    assert not late.exists() or list(late.iterdir()) == [], "objects of epochs that are done are deleted"


def failing_once(frame: DataFrame, mark: Path) -> DataFrame:
    """One attempt fails after all its rows are through, and leaves a mark."""

    def fails(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from rows
        if of_second_partition() and not mark.exists():
            mark.touch()
            raise RuntimeError("this attempt fails on purpose")

    def of_second_partition() -> bool:
        context = TaskContext.get()
        assert context is not None
        return bool(context.partitionId() == 1)

    return frame.mapInArrow(fails, frame.schema)


def test_late_rows_reach_a_function_once(spark: SparkSession, tmp_path: Path) -> None:
    """A task is retried, a server dies, the function fails and its epoch is replayed."""
    query = Scripted(spark, tmp_path, WINDOWED, files_per_epoch=2)
    query.feed(batches(4))
    frame = failing_once(query.frame(), tmp_path / "mark")
    sink = LateSink()

    def fails(rows: DataFrame, epoch: int) -> None:
        if epoch == 2:
            raise RuntimeError("this function fails on purpose")
        sink.save(rows, epoch)
        if epoch == 0:
            for server in session_servers():
                server.kill()

    with pytest.raises(Exception, match="fails on purpose"):
        run(query, frame, func=fails)
    assert sorted(query.output.tables) == [0, 1], "late rows come before the query's own"
    run(query, frame, func=sink.save)
    assert (tmp_path / "mark").exists()
    check(query, sink.epochs)
    last = query.output.progress[-1]
    reasons = [row[3] for row in sink.epochs[3]]
    assert (last.late_rows, last.null_time_rows) == (reasons.count("late"), reasons.count("no event time"))


@pytest.mark.long
@pytest.mark.parametrize("format_", ["parquet", "json"])
def test_late_rows_in_files(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    """An epoch has a folder of its own, which a replay overwrites."""
    query = Scripted(spark, tmp_path, TUMBLING)
    query.feed(batches(3))
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        path = str(tmp_path / "late")
        run(query, failing_once(query.frame().repartition(3), tmp_path / "mark"), format=format_, path=path)
        # As if Spark had not noted the last epoch.
        for name in ("2", ".2.crc"):
            (query.checkpoint / "commits" / name).unlink(missing_ok=True)
        run(query, format=format_, path=path)
        schema = "k bigint, ts timestamp, v bigint, tailrace_reason string, tailrace_epoch int"
        table = spark.read.schema(schema).format(format_).load(path).toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    epochs = table["tailrace_epoch"].to_pylist()
    got = {
        epoch: rows_of(table.filter(pa.array([each == epoch for each in epochs])).drop_columns("tailrace_epoch"))
        for epoch in set(epochs)
    }
    check(query, got)


@pytest.mark.long
def test_late_rows_of_a_join_tell_their_side(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path, TUMBLING)
    query.feed(batches(3))
    sink: dict[int, pa.Table] = {}

    def side(name: str) -> Any:
        frame = query.frame().select("k", F.col("ts").alias(f"{name}_ts"), F.col("v").alias(f"{name}_v"))
        return tr.stream(frame).withWatermark(f"{name}_ts", "2 seconds")

    joined = side("l").join(side("r"), "k", window=tr.window("l_ts", "10 seconds"))
    writer = joined.writeStream.format("noop").lateRows(lambda rows, epoch: sink.update({epoch: rows.toArrow()}))
    started = writer.option("checkpointLocation", str(query.checkpoint)).trigger(availableNow=True).start()
    started.awaitTermination()
    started.stop()
    want = wanted(TUMBLING, query.fed)
    assert {epoch for epoch, rows in want.items() if rows} == set(sink)
    for epoch, table in sink.items():
        assert table.schema.names == ["tailrace_side", "k", "l_ts", "l_v", "r_ts", "r_v", "tailrace_reason"]
        for name in ("left", "right"):
            own = table.filter(pa.array([each == name for each in table["tailrace_side"].to_pylist()]))
            first, other = name[0], "r" if name == "left" else "l"
            assert own[f"{other}_v"].null_count == own[f"{other}_ts"].null_count == len(own)
            got = own.select(["k", f"{first}_ts", f"{first}_v", "tailrace_reason"]).rename_columns(
                ["k", "ts", "v", "tailrace_reason"]
            )
            assert rows_of(got) == want[epoch]
