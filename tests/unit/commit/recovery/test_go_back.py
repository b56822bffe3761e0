"""Going back to a retained epoch: it is opened, and every epoch behind it is run again with the files that it had."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from support.models.spark_checkpoint import SparkCheckpoint
from support.models.spark_logs import spark_logs
from tailrace.commit import controller as controllers
from tailrace.commit.controller import Controller
from tailrace.commit.log import CommitLog, Fence
from tailrace.commit.spark_logs.log_files import SparkLogFolder
from tailrace.env.files.disk import Disk
from tailrace.env.stores.local_store import LocalStore
from tailrace.errors import CheckpointError, CorruptionError, RewindNeeded
from tailrace.log import filenames

PLAN = {"q": 1}
RETAIN = 4


class Query:
    """Epochs 0 to 8 are durable, 9 was released and is not durable. Epoch e has read file ``f<e>``."""

    def __init__(self, root: Path, durable: int = 8, released: int = 9) -> None:
        self.spark = SparkCheckpoint(root / "check")
        self.store = LocalStore(root / "state")
        controller = self.start()
        self.spark.start()
        for epoch in range(released + 1):
            self.spark.plan(epoch, f"f{epoch}")
            controller.record_spark_logs(epoch)
            if epoch <= durable:
                controller.commit(epoch, 0, rows={"input": epoch})
                controller.clean()
                self.spark.commit(epoch)
        controller.close()

    def start(self, go_back_to: int | None = None, disk: Disk | None = None) -> Controller:
        folder = SparkLogFolder(self.spark.root, disk)
        return Controller.start(self.store, PLAN, folder, retain=RETAIN, go_back_to=go_back_to)

    def run_again(self, controller: Controller) -> tuple[int, list[str] | None]:
        """The epoch that a run begins with: its number and its files, None where Spark plans it afresh."""
        controller.trim_spark_logs()
        self.spark.start()
        epoch, files = self.spark.resumes()
        if files is None:
            self.spark.plan(epoch, "fresh", "and more")
        controller.refuse_fresh_plan(epoch)
        controller.record_spark_logs(epoch)
        controller.commit(epoch, 0, rows={"input": epoch})
        controller.clean()
        self.spark.commit(epoch)
        self.spark.plan(epoch + 1, "fresh")  # as Spark does: afresh, and with other files than it had
        if epoch < 9:
            with pytest.raises(RewindNeeded, match=f"epoch {epoch + 1} must be run again as it was"):
                controller.refuse_fresh_plan(epoch + 1)
        else:
            controller.refuse_fresh_plan(epoch + 1)
        controller.close()
        return epoch, files


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(tmp_path)


@pytest.mark.parametrize("epoch", [5, 6, 7])
def test_every_epoch_behind_it_is_run_again_as_it_was(query: Query, epoch: int) -> None:
    """Also the newest, which a sink has seen and no manifest has."""
    controller = query.start(go_back_to=epoch)
    for expected in range(epoch + 1, 10):
        assert controller.recovery_point.epoch == expected - 1
        assert controller.recovery_point.released == 9, "a table that has these epochs would be taken for a newer one"
        replay = controller.recovery_point.replay
        assert replay is None if expected == 9 else replay is not None and replay.rows == {"input": expected}
        assert query.run_again(controller) == (expected, [f"f{expected}"])
        controller = query.start()
    assert controller.recovery_point.epoch == 9 and controller.recovery_point.replay is None
    assert controller.recovery_point.released == 9
    query.spark.start()
    controller.trim_spark_logs()
    assert query.spark.resumes() == (10, None)


def test_a_start_that_dies_on_the_way_is_repeated(query: Query) -> None:
    """Whatever it had changed of Spark's logs; and the query may go back once more, to an older epoch."""

    class Stops(Disk):
        def __init__(self, left: int) -> None:
            self.left = left

        def replace(self, source: Path, target: Path) -> None:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            super().replace(source, target)

    for left in range(8):
        with contextlib.suppress(KeyboardInterrupt):
            query.start(7 if left == 0 else None, Stops(left)).close()
    assert query.run_again(query.start()) == (8, ["f8"])
    for expected in (7, 8, 9):
        assert query.run_again(query.start(6 if expected == 7 else None)) == (expected, [f"f{expected}"])


def test_what_is_to_be_run_again_is_kept_until_then(query: Query) -> None:
    """Entries and records, through starts and cleanings; and nothing of it afterwards."""
    query.start(go_back_to=6).close()
    log = CommitLog(query.store)
    for _ in range(3):
        query.start().close()
    manifests = [entry for number in log.numbers() if not isinstance(entry := log.entry(number), Fence)]
    assert [each.epoch for each in manifests] == [5, 7, 8, 6]
    for _ in range(3):
        query.run_again(query.start())
    query.start().close()
    newest = log.read().newest
    assert newest is not None and newest.replayed_until == newest.epoch == 9
    kept = [entry.epoch for number in log.numbers() if not isinstance(entry := log.entry(number), Fence)]
    assert sorted(kept) == [6, 7, 8, 9]


def test_a_replaced_run_that_wakes_up_cleans_nothing_that_is_run_again(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had committed an epoch and not cleaned up behind it. What it will delete then is in the log until then."""
    monkeypatch.setattr(controllers, "QueryLock", lambda *_: NoLock())  # on another machine
    sleeper = query.start()
    sleeper.record_spark_logs(9)
    sleeper.commit(9, 0, rows={"input": 9})
    query.spark.commit(9)
    with pytest.raises(CheckpointError, match=r"back to epoch 5: .* kept: epoch 9, epoch 8, epoch 7, epoch 6\."):
        query.start(go_back_to=5)
    query.start(go_back_to=6)
    sleeper.clean()
    for expected in (7, 8, 9):
        assert query.run_again(query.start()) == (expected, [f"f{expected}"])


class NoLock:
    def release(self) -> None:
        pass


def test_an_epoch_that_is_not_kept_is_refused_and_the_others_are_named(query: Query) -> None:
    before = CommitLog(query.store).numbers()
    for epoch in (4, 9, -1):
        with pytest.raises(
            CheckpointError, match=f"back to epoch {epoch}: .* kept: epoch 8, epoch 7, epoch 6, epoch 5"
        ):
            query.start(go_back_to=epoch)
    assert CommitLog(query.store).numbers() == before, "a start that is refused has fenced a query that runs"


def test_the_newest_epoch_is_where_it_is_anyway(query: Query) -> None:
    controller = query.start(go_back_to=8)
    assert controller.recovery_point.manifest.replayed_until == 8
    assert query.run_again(controller) == (9, ["f9"])


def test_without_records_of_sparks_logs_it_is_refused(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "state")
    controller = Controller.start(store, PLAN, spark_logs(), retain=3)
    for epoch in range(3):
        controller.commit(epoch, 0)
    controller.close()
    with pytest.raises(CheckpointError, match="Spark's logs were not recorded with the state"):
        Controller.start(store, PLAN, spark_logs(range(3), range(3)), retain=3, go_back_to=1)


def test_behind_a_damaged_entry_nobody_knows_what_a_sink_has_seen(query: Query) -> None:
    name = filenames.entry_name(max(CommitLog(query.store).numbers()))
    query.store.put(name, [query.store.get(name)[:-9] + b"damage!!!"])
    with pytest.raises(CorruptionError, match="damaged"):
        query.start(go_back_to=6)
