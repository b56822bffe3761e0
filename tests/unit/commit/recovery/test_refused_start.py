"""A start that must be refused does not end the query that runs: it decides before it fences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.models.spark_checkpoint import SparkCheckpoint
from support.models.spark_logs import FakeSparkLogs, spark_logs
from tailrace.commit import controller as controllers
from tailrace.commit.controller import Controller
from tailrace.commit.log import CommitLog
from tailrace.commit.manifest import Manifest
from tailrace.commit.objects import write_object
from tailrace.commit.spark_logs.log_files import SparkLogFolder
from tailrace.env.stores.local_store import LocalStore
from tailrace.errors import CheckpointError, CorruptionError, FencedError

PLAN = {"q": 1}


class NoLock:
    """Machines do not see each other's locks on an object store."""

    def __init__(self, *_: object) -> None: ...

    def release(self) -> None: ...


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    monkeypatch.setattr(controllers, "QueryLock", NoLock)
    return LocalStore(tmp_path / "state")


@pytest.fixture
def running(store: LocalStore) -> Controller:
    """Epochs 0 to 2 are durable."""
    controller = Controller.start(store, PLAN, spark_logs())
    for epoch in range(3):
        commit(controller, store, epoch)
    return controller


def commit(controller: Controller, store: LocalStore, epoch: int) -> None:
    about = {"try_": 0, "server": 0, "first_epoch": epoch, "last_epoch": epoch, "shards": [(0, 4)]}
    delta = write_object(store, run=controller.run, sections={}, horizons={}, **about)
    controller.commit(epoch, 0, [delta])


def other_plan(store: LocalStore, root: Path) -> None:
    Controller.start(store, {"q": 2}, spark_logs(range(3), range(3)))


def empty_checkpoint(store: LocalStore, root: Path) -> None:
    Controller.start(store, PLAN, spark_logs())


def other_checkpoint(store: LocalStore, root: Path) -> None:
    Controller.start(store, PLAN, spark_logs(range(8), range(9)))


def wrong_clock(store: LocalStore, root: Path) -> None:
    def refuse(newest: Manifest) -> None:
        raise CheckpointError(f"the clock has jumped since epoch {newest.epoch}")

    Controller.start(store, PLAN, spark_logs(range(3), range(3)), check=refuse)


def other_plan_of_a_busy_query(running: Controller, store: LocalStore) -> None:
    """The running query commits an epoch in every look of the start."""
    epochs = iter(range(3, 100))

    def refuse(stored: object, now: object) -> None:
        commit(running, store, next(epochs))
        raise CheckpointError("another plan")

    Controller.start(store, {"q": 2}, spark_logs(range(3), range(3)), compare=refuse)


def missing_object(store: LocalStore, root: Path) -> None:
    name = store.list("objects/")[-1].name
    data = store.get(name)
    store.delete([name])
    try:
        Controller.start(store, PLAN, spark_logs(range(3), range(3)))
    finally:
        store.put(name, [data])


def object_cut_off(store: LocalStore, root: Path) -> None:
    name = store.list("objects/")[-1].name
    data = store.get(name)
    store.put(name, [data[:-7]])
    try:
        Controller.start(store, PLAN, spark_logs(range(3), range(3)))
    finally:
        store.put(name, [data])


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (other_plan, "q was 1 and is 2"),
        (empty_checkpoint, "Spark's checkpoint is empty"),
        (other_checkpoint, "do not belong together"),
        (wrong_clock, "the clock has jumped since epoch 2"),
        (missing_object, r"objects/.*\.delta is damaged: it is missing"),
        (object_cut_off, r"objects/.*\.delta is damaged: it has \d+ bytes and should have \d+"),
    ],
)
def test_the_query_that_runs_goes_on(
    store: LocalStore,
    running: Controller,
    tmp_path: Path,
    refused: Callable[[LocalStore, Path], None],
    message: str,
) -> None:
    before = CommitLog(store).numbers()
    with pytest.raises(CheckpointError, match=message):
        refused(store, tmp_path)
    assert CommitLog(store).numbers() == before
    commit(running, store, 3)


def test_a_checkpoint_of_another_query_on_a_disk(store: LocalStore, tmp_path: Path) -> None:
    spark = SparkCheckpoint(tmp_path / "check")
    running = Controller.start(store, PLAN, SparkLogFolder(spark.root))
    spark.start()
    spark.plan(0, "f0")
    running.record_spark_logs(0)
    running.commit(0, 0)
    other = SparkCheckpoint(tmp_path / "other", query="another-one")
    other.start()
    other.plan(0, "f0")
    other.commit(0)
    with pytest.raises(CheckpointError, match="is that of query another-one"):
        Controller.start(store, PLAN, SparkLogFolder(other.root))
    spark.commit(0)
    spark.plan(1, "f1")
    running.record_spark_logs(1)
    running.commit(1, 0)


def test_a_refusal_counts_only_where_nothing_has_changed_meanwhile(store: LocalStore, running: Controller) -> None:
    """A start takes over from a query that runs. What it reads first, that query may change as it reads."""
    logs = spark_logs(range(3), range(3))

    class Moving(FakeSparkLogs):
        """Between the start's look at the log and at Spark's logs, the query does two epochs more. Once."""

        def epochs(self, log: str) -> list[int]:
            if log == "commits" and max(self.commits) == 2:
                for epoch in (3, 4):
                    commit(running, store, epoch)
                self.commits, self.offsets = list(range(5)), list(range(5))
            return super().epochs(log)

    taken = Controller.start(store, PLAN, Moving(logs.commits, logs.offsets))
    assert taken.recovery_point.epoch == 4


def test_missing_objects_are_refused_after_the_fence_too(
    store: LocalStore, running: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence = CommitLog.fence

    def and_lose(self: CommitLog, run: str) -> int:
        store.delete([each.name for each in store.list("objects/")])
        return fence(self, run)

    monkeypatch.setattr(CommitLog, "fence", and_lose)
    with pytest.raises(CorruptionError, match="it is missing"):
        Controller.start(store, PLAN, spark_logs(range(3), range(3)))


def test_a_query_that_commits_while_a_start_looks_goes_on(store: LocalStore, running: Controller) -> None:
    with pytest.raises(CheckpointError, match="another plan"):
        other_plan_of_a_busy_query(running, store)
    running.check_newest()


def test_a_replaced_run_releases_no_epoch_that_its_successor_may_plan_otherwise(
    store: LocalStore, running: Controller
) -> None:
    """Also where two machines share Spark's checkpoint, and nothing of it is recorded with the state."""
    running.record_spark_logs(3)
    Controller.start(store, PLAN, spark_logs(range(3), range(3)))
    with pytest.raises(FencedError):
        running.record_spark_logs(4)
