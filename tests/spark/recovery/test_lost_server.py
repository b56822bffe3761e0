"""A state server that dies at a chosen moment of an epoch: the epoch gets a new try, and nothing counts twice.

The kill tests (``tests/crash``) do this at random from outside; here every step of an epoch is hit on purpose.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from support.processes import kill, session_server_folders, session_servers, wait_until
from support.queries.engines import tailrace_stream
from support.queries.simple import ROLLING, WINDOWED, Scripted, batches
from tailrace.spark.servers import fleet, heartbeat
from tailrace.testing import Question


def questions(quick: Question | None = None) -> pytest.MarkDecorator:
    """Both questions in the long profile, and ``quick`` alone else, if any."""
    cases = {"rolling": ROLLING, "windowed": WINDOWED}
    marks = {name: () if case is quick else (pytest.mark.long,) for name, case in cases.items()}
    return pytest.mark.parametrize("question", [pytest.param(cases[n], id=n, marks=marks[n]) for n in cases])


def kill_servers() -> int:
    killed = sum(kill(server.pid) for server in session_servers())
    wait_until("the servers' end", lambda: not session_servers(), 5)
    return killed


def run(query: Scripted, save: Any, **options: str) -> Any:
    stream = tailrace_stream(query.frame(), query.question)
    writer = stream.writeStream.outputMode(query.question.output_mode).foreachBatch(save)
    for name, value in options.items():
        writer = writer.option(name, value)
    started = writer.option("checkpointLocation", str(query.checkpoint)).trigger(availableNow=True).start()
    try:
        started.awaitTermination()
    finally:
        started.stop()
    return started


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    return sorted(map(str, one.to_pylist())) == sorted(map(str, other.to_pylist()))


@questions(WINDOWED)
def test_killed_in_the_sink_after_its_rows_were_read(spark: SparkSession, tmp_path: Path, question: Question) -> None:
    """The epoch is durable and its rows are out: what is left of it may not be done twice."""
    query = Scripted(spark, tmp_path, question)
    query.feed(batches(6))
    killed: dict[int, int] = {}

    def save(batch: DataFrame, epoch: int) -> None:
        table = batch.toArrow()
        if epoch in query.output.tables:
            assert same_rows(table, query.output.tables[epoch])
        query.output.tables[epoch] = table
        if epoch in (0, 3) and epoch not in killed:
            killed[epoch] = kill_servers()

    run(query, save)
    assert killed == {0: 1, 3: 1}
    query.check()


@questions()
def test_killed_in_the_sink_before_its_rows_were_read(spark: SparkSession, tmp_path: Path, question: Question) -> None:
    query = Scripted(spark, tmp_path, question)
    query.feed(batches(6))
    killed: dict[int, int] = {}

    def save(batch: DataFrame, epoch: int) -> None:
        if epoch in (0, 3) and epoch not in killed:
            killed[epoch] = kill_servers()
        query.output.save(batch, epoch)

    run(query, save)
    assert killed == {0: 1, 3: 1}
    query.check()


@pytest.mark.long
def test_killed_while_many_rows_are_read(spark: SparkSession, tmp_path: Path) -> None:
    """So many rows that tasks fetch them from the server, which is gone."""
    query = Scripted(spark, tmp_path)
    query.feed(batches(3, rows=60_000, keys=50_000))
    killed: dict[int, int] = {}

    def save(batch: DataFrame, epoch: int) -> None:
        if epoch == 1 and epoch not in killed:
            killed[epoch] = kill_servers()
        query.output.save(batch, epoch)

    run(query, save)
    assert killed == {1: 1}
    query.check()


@questions(WINDOWED)
def test_killed_while_rows_are_sent(spark: SparkSession, tmp_path: Path, question: Question) -> None:
    """A task upstream kills it, once an epoch, while its own rows are on their way."""
    query = Scripted(spark, tmp_path, question)
    query.feed(batches(4, rows=300))
    pids = tmp_path / "pids"

    def kills(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            yield batch.slice(0, batch.num_rows // 2)
            if pids.exists():
                for pid in pids.read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
                pids.unlink(missing_ok=True)
            yield batch.slice(batch.num_rows // 2)

    def save(batch: DataFrame, epoch: int) -> None:
        query.output.save(batch, epoch)
        if epoch in (0, 2):
            pids.write_text(" ".join(str(server.pid) for server in session_servers()))

    frame = query.frame()
    query.frame = lambda: frame.mapInArrow(kills, frame.schema)  # type: ignore[method-assign]
    started = run(query, save)
    assert sum(progress.tries for progress in started.recentProgress) == 4 + 2
    query.check()
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(started.runId)]
    assert jobs and {job.status for job in jobs if job is not None} == {"SUCCEEDED"}, "tasks say what they have lost"


@questions(ROLLING)
def test_killed_between_two_epochs(spark: SparkSession, tmp_path: Path, question: Question) -> None:
    query = Scripted(spark, tmp_path, question)
    every = batches(4)
    query.feed(every[:2])
    running = query.start()
    try:
        running.processAllAvailable()
        for part in (every[2:3], every[3:]):
            assert kill_servers() == 1
            query.feed(part)
            running.processAllAvailable()
    finally:
        running.stop()
    query.check()


def test_a_server_that_dies_in_every_try_ends_the_query_and_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path)
    query.feed(batches(4))

    def save(batch: DataFrame, epoch: int) -> None:
        query.output.save(batch, epoch)
        if epoch == 2:
            kill_servers()
            batch.toArrow()
            raise ValueError("the sink could not go on")

    with pytest.raises(Exception, match="the sink could not go on"):
        run(query, save, recoveryTimeout="1 second")
    assert session_servers() == []
    query.run()
    query.check()


def test_a_server_killed_in_the_last_epoch_leaves_no_folder(spark: SparkSession, tmp_path: Path) -> None:
    """There is no later server that would clean up after it."""
    query = Scripted(spark, tmp_path)
    query.feed(batches(2))

    def save(batch: DataFrame, epoch: int) -> None:
        query.output.save(batch, epoch)
        if epoch == 1:
            assert kill_servers() == 1

    run(query, save)
    query.check()
    assert session_server_folders() == []


def test_a_stopped_query_leaves_no_server(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path)
    query.feed(batches(1))
    running = query.start()
    running.processAllAvailable()
    assert len(session_servers()) == 1
    running.stop()
    wait_until("the server's end", lambda: not session_servers(), 5)
    assert session_server_folders() == []
    with pytest.raises(tr.AnalysisError):
        query.start(shards="0")
    assert session_servers() == []


def test_one_that_hangs_is_noticed_and_replaced(spark: SparkSession, tmp_path: Path) -> None:
    """Stopped, not ended: its socket takes calls, and nobody answers them."""
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(5))
    stopped: list[int] = []

    def save(batch: DataFrame, epoch: int) -> None:
        query.output.tables[epoch] = batch.toArrow()
        if epoch == 2 and not stopped:
            stopped.extend(server.pid for server in session_servers())
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)

    run(query, save, heartbeatTimeout="1 second", commit="async")
    assert len(stopped) == 1
    assert not {server.pid for server in session_servers()} & set(stopped), "it was ended, and not left behind"
    query.check()


@pytest.fixture
def remote_servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Servers that look as if they were elsewhere: the driver cannot end them. Those that the test stops, by pid."""
    for module in (fleet, heartbeat):
        monkeypatch.setattr(module, "is_this_machine", lambda host: False)
    monkeypatch.setattr(fleet, "end_unresponsive", lambda server: None)
    stopped: list[int] = []
    yield stopped
    for pid in stopped:
        kill(pid)


@pytest.mark.timeout(90)
@pytest.mark.parametrize("mode", ["async", pytest.param("sync", marks=pytest.mark.long)])
def test_the_only_server_behind_a_cut_link_is_given_up(
    spark: SparkSession, tmp_path: Path, remote_servers: list[int], mode: str
) -> None:
    """Its calls would last for an hour, and its tasks too: the driver's own are left, and Spark's job is cancelled."""
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(5))

    def save(batch: DataFrame, epoch: int) -> None:
        query.output.tables[epoch] = batch.toArrow()
        if epoch == 2 and not remote_servers:
            remote_servers.extend(server.pid for server in session_servers())
            for pid in remote_servers:
                os.kill(pid, signal.SIGSTOP)

    run(query, save, heartbeatTimeout="1 second", commit=mode)
    assert len(remote_servers) == 1
    query.check()


@pytest.mark.timeout(90)
def test_one_that_falls_silent_between_two_epochs_is_given_up(
    spark: SparkSession, tmp_path: Path, remote_servers: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """There is no job to cancel, and calls to it are none: the next epoch's tasks would wait for it for an hour."""
    query = Scripted(spark, tmp_path, ROLLING)
    every = batches(3)
    query.feed(every[:1])
    with caplog.at_level(logging.INFO, "tailrace"):
        running = query.start(heartbeatTimeout="1 second")
        try:
            running.processAllAvailable()
            remote_servers.extend(server.pid for server in session_servers())
            for pid in remote_servers:
                os.kill(pid, signal.SIGSTOP)
            wait_until("it is given up", lambda: "it is given up" in caplog.text, 30, 0.05)
            query.feed(every[1:])
            running.processAllAvailable()
        finally:
            running.stop()
    assert len(remote_servers) == 1
    query.check()
    losses = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(losses) == 1 and "a state server was lost" in losses[0].getMessage(), "one line a loss"


@pytest.mark.timeout(90)
def test_a_job_that_we_cancel_while_rows_are_sent_is_a_loss(
    spark: SparkSession, tmp_path: Path, remote_servers: list[int]
) -> None:
    """The server stops answering in the middle of the ingest: its job comes back as cancelled."""
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(4, rows=300))
    pids = tmp_path / "pids"

    def stops(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            if pids.exists():
                for pid in pids.read_text().split():
                    os.kill(int(pid), signal.SIGSTOP)
                pids.unlink(missing_ok=True)
            yield batch

    def save(batch: DataFrame, epoch: int) -> None:
        query.output.tables[epoch] = batch.toArrow()
        if epoch == 1 and not remote_servers:
            remote_servers.extend(server.pid for server in session_servers())
            pids.write_text(" ".join(map(str, remote_servers)))

    frame = query.frame()
    query.frame = lambda: frame.mapInArrow(stops, frame.schema)  # type: ignore[method-assign]
    started = run(query, save, heartbeatTimeout="1 second", commit="sync")
    assert [progress.tries for progress in started.recentProgress] == [1, 1, 2, 1]
    query.check()
