"""Spark's checkpoint on a disk is lost, or comes back from a loss of power in pieces: the state brings it back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.queries.engines import check
from support.queries.simple import ROLLING, Scripted, Seen, batches
from tailrace.cli.checkpoint import go_back, reshard_
from tailrace.cli.savepoint import create, restore
from tailrace.commit.controller import Controller
from tailrace.commit.log import CommitLog
from tailrace.commit.spark_logs.log_files import BACKUP
from tailrace.env.stores.local_store import LocalStore
from tailrace.errors import CheckpointError, CorruptionError
from tailrace.testing import expected


class Elsewhere(Scripted):
    """Its state does not lie beside Spark's checkpoint. One file of rows is one epoch."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        super().__init__(spark, path, ROLLING)
        self.state = path / "state"
        self.seen = Seen(self)
        self.output.save = self.seen.save  # type: ignore[method-assign]

    def runs(self, commit: str = "async") -> None:
        self.run(commit=commit, stateLocation=str(self.state), retain="4")

    def check(self) -> None:
        """Each epoch took its file, whatever Spark's log still says of it."""
        check(self.output, expected(self.spark, self.question, self.fed), self.question.keys, {})


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Elsewhere:
    return Elsewhere(spark, tmp_path)


def test_a_query_continues_from_its_state_alone(query: Elsewhere) -> None:
    """More than ten epochs, so that the source has compacted its lists of files."""
    every = batches(15, rows=10)
    query.feed(every[:13])
    query.runs()
    assert (query.checkpoint / "sources/0/9.compact").exists()
    shutil.rmtree(query.checkpoint)
    query.feed(every[13:])
    query.runs()
    assert query.seen.again == [12], "Spark's commit of it is lost"
    assert sorted(query.output.tables) == list(range(15))
    query.check()


def test_a_query_goes_back_where_newer_state_is_damaged(query: Elsewhere) -> None:
    """The epochs behind are run again, each with the file that it had, though Spark would read all that is left."""
    every = batches(7, rows=10)
    query.feed(every[:6])
    query.runs()
    store = LocalStore(query.state)
    last = CommitLog(store).read().newest
    assert last is not None and last.epoch == 5
    for ref in last.objects:
        if ref.last_epoch > 3:
            (query.state / ref.name).write_bytes(b"no state")
    query.feed(every[6:])
    with pytest.raises(CorruptionError, match="has 8 bytes and should have"):
        query.runs()
    go_back(str(query.checkpoint), 3, str(query.state))
    query.runs()
    assert query.seen.again == [4, 5]
    assert sorted(query.output.tables) == list(range(7))
    query.check()


def test_a_query_is_started_from_a_savepoint(query: Elsewhere, tmp_path: Path) -> None:
    """It runs the epochs behind that, with the rows that the first query had in them, and has an id of its own.

    Also with other shards.
    """
    every = batches(5, rows=10)
    query.feed(every[:3])
    query.runs()
    create(str(query.checkpoint), "middle", state=str(query.state))
    query.feed(every[3:])
    query.runs()
    restore(str(query.state), "middle", str(tmp_path / "new"))
    first, query.checkpoint = query.checkpoint, tmp_path / "new"
    reshard_(str(query.checkpoint), 24)
    query.run(shards="24")
    assert query.seen.again == [3, 4]
    query.check()
    assert (first / "metadata").read_bytes() != (query.checkpoint / "metadata").read_bytes()


def newest(query: Elsewhere, log: str, count: int = 1) -> list[Path]:
    found = (path for path in (query.checkpoint / log).iterdir() if path.name[0].isdigit())
    return sorted(found, key=lambda path: int(path.name.split(".")[0]))[-count:]


def truncated(query: Elsewhere) -> None:
    """As a loss of power leaves files whose names are on the disk, and their bytes are not."""
    for log in ("offsets", "commits", "sources/0"):
        newest(query, log)[0].write_bytes(b"")
    (query.checkpoint / "metadata").write_bytes(b"")


def cut_off(query: Elsewhere) -> None:
    for log in ("offsets", "commits", "sources/0"):
        path = newest(query, log)[0]
        path.write_bytes(path.read_bytes()[:-9])


def two_epochs_behind(query: Elsewhere) -> None:
    """Neither name nor bytes of the newest two epochs are on the disk."""
    for log in ("offsets", "commits", "sources/0"):
        for path in newest(query, log, 2):
            path.unlink()


@pytest.mark.parametrize("lose", [truncated, cut_off, two_epochs_behind])
@pytest.mark.parametrize("mode", ["async", pytest.param("sync", marks=pytest.mark.long)])
def test_a_loss_of_power(query: Elsewhere, lose: Callable[[Elsewhere], None], mode: str) -> None:
    every = batches(5, rows=10)
    query.feed(every[:4])
    query.runs(mode)
    lose(query)
    query.feed(every[4:])
    query.runs(mode)
    assert query.seen.again == [3]
    query.check()


def test_epochs_that_a_sink_has_seen_are_replayed_as_they_were(query: Elsewhere) -> None:
    """The newest was not durable, and the disk is lost with the offsets that it was planned by."""
    every = batches(5, rows=10)
    query.feed(every[:4])
    query.runs()
    log = CommitLog(LocalStore(query.state))
    last = log.read().newest
    assert last is not None and last.epoch == 3
    log.delete([last.number])
    shutil.rmtree(query.checkpoint)
    query.feed(every[4:])
    query.runs()
    assert query.seen.again == [3]
    query.check()


def test_what_was_planned_behind_a_lost_epoch_does_not_grow(query: Elsewhere) -> None:
    """A crash in epoch 4 while epoch 3 was not durable: the source forgets what it had listed for epoch 4."""
    query.feed(batches(5, rows=10))
    query.runs()
    log = CommitLog(LocalStore(query.state))
    for _ in range(2):
        last = log.read().newest
        assert last is not None
        log.delete([last.number])
    for path in (query.checkpoint / "commits").glob("*4*"):
        path.unlink()
    query.runs()
    assert query.seen.again == [3, 4]
    assert (query.checkpoint / BACKUP / "sources/0/4").exists()
    query.check()


@pytest.mark.long
def test_a_list_of_files_that_goes_before_spark_reads_it(query: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that was replaced moves it late, where several machines see the checkpoint: that costs another start."""
    every = batches(5, rows=10)
    query.feed(every[:4])
    query.runs()
    trim, moved = Controller.trim_spark_logs, []

    def and_move(self: Controller) -> None:
        trim(self)
        if not moved:
            moved.append((query.checkpoint / "sources/0/1").rename(query.checkpoint / "late"))

    monkeypatch.setattr(Controller, "trim_spark_logs", and_move)
    query.feed(every[4:])
    query.runs()
    assert moved and sorted(query.output.tables) == list(range(5))
    query.check()


@pytest.mark.long
def test_an_epoch_that_a_replaced_driver_commits_late_is_run_again(
    query: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not durable, and Spark takes it for done. There are no more rows, so Spark ends without it."""
    query.feed(batches(4, rows=10))
    query.runs()
    log = CommitLog(LocalStore(query.state))
    last = log.read().newest
    assert last is not None and last.epoch == 3
    log.delete([last.number])
    trim, committed = Controller.trim_spark_logs, []

    def and_commit(self: Controller) -> None:
        trim(self)
        if not committed:
            committed.append(shutil.copy(query.checkpoint / BACKUP / "commits/3", query.checkpoint / "commits/3"))

    monkeypatch.setattr(Controller, "trim_spark_logs", and_commit)
    query.runs()
    newest = log.read().newest
    assert committed and query.seen.again == [3] and newest is not None and newest.epoch == 3
    query.check()


def test_another_querys_checkpoint_is_refused(query: Elsewhere, tmp_path: Path) -> None:
    query.feed(batches(2, rows=10))
    query.runs()
    own, other = query.checkpoint, Elsewhere(query.spark, tmp_path / "other")
    other.feed(batches(1, rows=10))
    other.runs()
    query.checkpoint = other.checkpoint
    with pytest.raises(CheckpointError, match=r"is that of query .* belongs to query"):
        query.runs()
    query.checkpoint = own
    query.runs()
    assert query.seen.again == []
