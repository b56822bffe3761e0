"""Commits behind the sink: the same rows, and a start that rewinds Spark where an epoch did not become durable."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from support.processes import kill, session_servers, wait_until
from support.queries.simple import ROLLING, WINDOWED, Scripted, Seen, batches
from tailrace.commit.log import CommitLog
from tailrace.commit.spark_logs.log_files import BACKUP
from tailrace.env.stores.local_copy import copies_of
from tailrace.env.stores.local_store import LocalStore
from tailrace.env.stores.location import open_store
from tailrace.errors import CheckpointError
from tailrace.spark.sources.inspection import read_once

MODES = ("async", pytest.param("async-checkpoint", marks=pytest.mark.long))


def slow(query: Scripted, latency_ms: int) -> dict[str, str]:
    """Options of a query whose state is far away. Its files lie where they would lie else."""
    return {"stateLocation": f"shaped:latency_ms={latency_ms}:{query.state}"}


def durable(query: Scripted) -> int:
    newest = CommitLog(LocalStore(query.state)).read().newest
    return -1 if newest is None else newest.epoch


def spark_epoch(query: Scripted, log: str) -> int:
    return max(int(path.name) for path in (query.checkpoint / log).iterdir() if path.name.isdigit())


def forget_newest(query: Scripted) -> None:
    """As if the crash had come before the newest epoch was durable."""
    newest = CommitLog(LocalStore(query.state)).read().newest
    assert newest is not None
    (query.state / "log" / f"{newest.number:020d}.json").unlink()


@pytest.mark.parametrize("mode", MODES)
def test_the_oracles_rows_across_restarts(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    query = Scripted(spark, tmp_path, WINDOWED)
    every = batches(9)
    for part in (every[:4], every[4:5], every[5:]):
        query.feed(part)
        query.run(commit=mode, **slow(query, 20))
        assert durable(query) == spark_epoch(query, "commits"), "the end of a query works its commits off"
    query.check()


@pytest.mark.parametrize(
    "manager",
    [
        "FileSystemBasedCheckpointFileManager",
        pytest.param("FileContextBasedCheckpointFileManager", marks=pytest.mark.long),
    ],
)
def test_a_start_behind_spark_rewinds_it(spark: SparkSession, tmp_path: Path, manager: str) -> None:
    name = "spark.sql.streaming.checkpointFileManagerClass"
    before = spark.conf.get(name)
    spark.conf.set(name, f"org.apache.spark.sql.execution.streaming.checkpointing.{manager}")
    try:
        query = Scripted(spark, tmp_path, WINDOWED)
        every = batches(7)
        query.feed(every[:5])
        query.run(commit="async")
        forget_newest(query)
        assert (durable(query), spark_epoch(query, "commits")) == (3, 4)
        query.feed(every[5:])
        seen = Seen(query)
        query.output.save = seen.save  # type: ignore[method-assign]
        query.run(commit="async")
    finally:
        spark.conf.set(name, before or "")
    assert seen.again == [4]
    assert (query.checkpoint / BACKUP / "commits" / "4").exists()
    assert (durable(query), spark_epoch(query, "commits")) == (6, 6)
    query.check()


@pytest.mark.long
def test_a_start_behind_spark_at_the_first_epoch(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(1))
    query.run(commit="async")
    forget_newest(query)
    query.feed(batches(3)[1:])
    query.run(commit="sync")  # a start rewinds whatever its own mode is
    query.check()


def test_an_offset_that_was_planned_behind_the_lost_epoch_is_planned_afresh(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(5))
    query.run(commit="async", retain="4")
    # Durable up to 2, committed up to 3, planned up to 4: as after a crash in the ingest of 4.
    forget_newest(query)
    forget_newest(query)
    for name in ("4", ".4.crc"):
        (query.checkpoint / "commits" / name).unlink(missing_ok=True)
    seen = Seen(query)
    query.output.save = seen.save  # type: ignore[method-assign]
    query.run(commit="async")
    assert seen.again == [3, 4]
    assert (query.checkpoint / BACKUP / "offsets" / "4").exists()
    query.check()


def run_with_a_server_lost_behind_epoch_2(query: Scripted, saved: Path | None = None, **options: str) -> Seen:
    """Killed once Spark has committed epoch 2, whose log entry takes a while longer.

    ``saved``: where its delta must be before that.
    """
    query.feed(batches(4))
    killed: list[int] = []

    def kill_once() -> None:
        wait_until("Spark's commit of epoch 2", lambda: (query.checkpoint / "commits" / "2").exists(), 60)
        if saved is not None:
            wait_until("the copy of its delta", lambda: any(saved.glob(f"*/objects/{2:020d}-*.delta")), 60)
        killed.extend(server.pid for server in session_servers() if kill(server.pid))

    killer = threading.Thread(target=kill_once)
    killer.start()
    seen = Seen(query)
    query.output.save = seen.save  # type: ignore[method-assign]
    query.run(commit="async", **slow(query, 200), **options)
    killer.join()
    assert len(killed) == 1
    return seen


def test_a_server_lost_with_an_epoch_that_spark_has_committed_restarts_the_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    seen = run_with_a_server_lost_behind_epoch_2(query, localLocation="off")
    assert seen.again == [2], "the query itself has started again, from the epoch before"
    assert (query.checkpoint / BACKUP / "commits" / "2").exists()
    query.check()


def test_what_a_lost_server_had_saved_is_uploaded_by_the_next(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    local = tmp_path / "local"
    seen = run_with_a_server_lost_behind_epoch_2(query, local, localLocation=str(local))
    assert 2 not in seen.again, "no epoch that Spark has committed was lost with it"
    assert not (query.checkpoint / BACKUP).exists()
    query.check()
    listed = CommitLog(LocalStore(query.state)).read().newest
    assert listed is not None
    kept = {path.name for path in local.glob("*/objects/*")}
    assert kept >= {Path(ref.name).name for ref in listed.objects}, (
        "a place that the user names stays, and is up to date"
    )


def test_copies_make_a_start_independent_of_reading_the_store(spark: SparkSession, tmp_path: Path) -> None:
    """What has a copy is not read from the store; what is damaged or gone there is."""
    query = Scripted(spark, tmp_path, ROLLING)
    local, every = tmp_path / "local", batches(6)
    far = {**slow(query, 1), "localLocation": str(local), "commit": "async"}
    query.feed(every[:2])
    query.run(**far)
    stored = {path: path.read_bytes() for path in (query.state / "objects").iterdir()}
    for path, data in stored.items():
        path.write_bytes(b"?" * len(data))
    query.feed(every[2:3])
    query.run(**far)
    for path, data in stored.items():
        if path.exists():
            path.write_bytes(data)
    for path in local.glob("*/objects/*"):
        path.write_bytes(path.read_bytes()[:-20] + b"damage" + path.read_bytes()[-14:])
    query.feed(every[3:4])
    query.run(**far)
    for path in local.glob("*/objects/*"):
        path.unlink()
    query.feed(every[4:])
    query.run(**far)
    query.check()


def test_copies_in_the_temporary_folder_go_with_the_query(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(2))
    query.run(commit="async", **slow(query, 1))
    store = open_store(slow(query, 1)["stateLocation"])
    wait_until("the copies' end", lambda: not copies_of(store, None).root.exists(), 10)


def test_stop_works_off_the_commit_that_has_begun(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(3))
    started = query.start(commit="async", **slow(query, 200))
    started.processAllAvailable()
    assert durable(query) < 2
    started.stop()
    assert (durable(query), spark_epoch(query, "commits")) == (2, 2)
    wait_until("the servers' end", lambda: not session_servers(), 5)


@pytest.mark.long
def test_stop_does_not_wait_for_a_store_that_hangs(spark: SparkSession, tmp_path: Path) -> None:
    """The epoch that waits at the gate has reached no sink: the next start runs it."""
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(4))
    started = query.start(commit="async", **slow(query, 3_000))
    wait_until("the first epoch's end", lambda: (query.checkpoint / "commits" / "0").exists(), 60)
    wait_until("the second epoch", lambda: (query.checkpoint / "offsets" / "1").exists(), 60)
    time.sleep(1.0)  # so that it waits at the gate
    started.stop()
    assert (started.exception(), started.isActive) == (None, False)
    started.awaitTermination()
    assert sorted(query.output.tables) == [0]
    query.run(commit="async")
    query.check()


@pytest.mark.long
def test_a_last_epoch_that_cannot_be_made_durable_is_reported_and_run_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(3))
    objects, backup = query.state / "objects", query.state / "backup"
    save = query.output.save

    def broken(batch: DataFrame, epoch: int) -> None:
        save(batch, epoch)
        if epoch == 2 and not backup.exists():
            objects.rename(backup)
            objects.write_text("no folder")

    query.output.save = broken  # type: ignore[method-assign]
    with pytest.raises(CheckpointError, match="stateLocation"):
        query.run(commit="async", **slow(query, 300))
    objects.unlink()
    backup.rename(objects)
    query.output.save = save  # type: ignore[method-assign]
    query.run(commit="async")
    query.check()


def test_sources_that_give_an_epoch_once_commit_before_the_sink(
    spark: SparkSession, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"k": 1}')
    files = spark.readStream.schema("k bigint")
    socket = spark.readStream.format("socket").option("host", "localhost").option("port", 1)
    assert read_once(files.json(str(tmp_path / "in")).where("k > 0")) == ()
    assert read_once(spark.readStream.format("rate").load().union(spark.readStream.format("rate").load())) == ()
    assert read_once(socket.load()) == ("source socket is not known to give an epoch twice",)
    cleaned = files.option("cleanSource", "DELETE").json(str(tmp_path / "in"))
    writer = tr.stream(cleaned).groupBy("k").agg(tr.count()).writeStream.outputMode("update").format("noop")
    query = writer.options(commit="async", checkpointLocation=str(tmp_path / "c")).trigger(availableNow=True).start()
    query.awaitTermination()
    query.explain()
    assert "commit sync, since files are cleaned (cleanSource delete)" in capsys.readouterr().out


def test_the_epoch_config_is_kept_until_it_is_durable(spark: SparkSession, tmp_path: Path) -> None:
    """Doubles are added in another order where tasks combine: a replay must not change its mind."""
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(2))
    query.run(commit="async", combine="on")
    assert list((query.state / "epoch-config").iterdir()) == []
    forget_newest(query)
    query.feed(batches(3)[2:])
    output = query.run(commit="async", combine="off")
    by_epoch = {each.epoch: each.combined for each in output.progress}
    assert by_epoch[1], "replayed as it was"
    assert not by_epoch[2]
    query.check()
