"""Spark's logs in a checkpoint on a disk: recorded with the state, and made again from it after a loss.

``SparkCheckpoint`` writes them as Spark does, and says what Spark would go on with.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support.models.spark_checkpoint import COMPACT_EVERY, SparkCheckpoint
from tailrace.commit import controller as controllers
from tailrace.commit.controller import Controller
from tailrace.commit.inspect import inspect
from tailrace.commit.spark_logs.log_files import BACKUP, SparkLogFolder
from tailrace.env.files.disk import Disk
from tailrace.env.stores.local_store import LocalStore
from tailrace.errors import CheckpointError, CorruptionError, FencedError, RewindNeeded
from tailrace.log import filenames

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
PLAN = {"q": 1}


class Query:
    """A query whose checkpoint and state lie in two folders. Epoch e reads file ``f<e>``."""

    def __init__(self, root: Path) -> None:
        self.spark = SparkCheckpoint(root / "check")
        self.store = LocalStore(root / "state")

    def start(self) -> Controller:
        return Controller.start(self.store, PLAN, SparkLogFolder(self.spark.root))

    def run(self, durable: int, committed: int, recorded: int, planned: int) -> None:
        """Epochs up to these, and then a crash."""
        controller = self.start()
        self.spark.start()
        for epoch in range(planned + 1):
            self.spark.plan(epoch, f"f{epoch}")
            if epoch <= recorded:
                controller.record_spark_logs(epoch)
            if epoch <= durable:
                controller.commit(epoch, 0, rows={"input": 1})
                controller.clean()
            if epoch <= committed:
                self.spark.commit(epoch)
        controller.close()

    def recovers(self) -> tuple[int, int, list[str] | None]:
        """Where the state is opened, and what Spark goes on with."""
        controller = self.start()
        controller.trim_spark_logs()
        controller.close()
        self.spark.start()
        return controller.recovery_point.epoch, *self.spark.resumes()


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(tmp_path)


def newest(spark: SparkCheckpoint, log: str) -> Path:
    return max((spark.root / log).glob("[0-9]*"), key=lambda path: int(path.name.split(".")[0]))


def lose_all(spark: SparkCheckpoint) -> None:
    shutil.rmtree(spark.root)


def lose_newest(spark: SparkCheckpoint) -> None:
    for log in ("offsets", "commits", "sources/0"):
        for _ in range(2):
            newest(spark, log).unlink()


def empty_newest(spark: SparkCheckpoint) -> None:
    for log in ("offsets", "commits", "sources/0"):
        newest(spark, log).write_bytes(b"")
    (spark.root / "metadata").write_bytes(b"")


def halve_newest(spark: SparkCheckpoint) -> None:
    for log in ("offsets", "commits", "sources/0"):
        path = newest(spark, log)
        path.write_bytes(path.read_bytes()[:-5])


def lose_commits(spark: SparkCheckpoint) -> None:
    shutil.rmtree(spark.root / "commits")


def lose_offsets(spark: SparkCheckpoint) -> None:
    shutil.rmtree(spark.root / "offsets")


def nothing(spark: SparkCheckpoint) -> None:
    pass


LOSSES = (nothing, lose_all, lose_newest, empty_newest, halve_newest, lose_commits, lose_offsets)


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("epochs", [3, 9])
def test_an_epoch_that_a_sink_may_have_seen_is_replayed_with_its_files(
    query: Query, epochs: int, lose: Callable[[SparkCheckpoint], None]
) -> None:
    """The newest epoch is recorded, and not durable; whatever of Spark's logs is lost."""
    query.run(durable=epochs - 1, committed=epochs - 1, recorded=epochs, planned=epochs)
    lose(query.spark)
    for _ in range(2):
        assert query.recovers() == (epochs - 1, epochs, [f"f{epochs}"])


@pytest.mark.parametrize("lose", LOSSES)
def test_an_epoch_that_spark_has_committed_and_that_was_lost_here_is_replayed(
    query: Query, lose: Callable[[SparkCheckpoint], None]
) -> None:
    query.run(durable=4, committed=5, recorded=6, planned=6)
    lose(query.spark)
    for _ in range(2):
        assert query.recovers() == (4, 5, ["f5"])


@pytest.mark.parametrize("lose", LOSSES[1:])
def test_the_newest_durable_epoch_is_replayed_where_sparks_commit_of_it_is_lost(
    query: Query, lose: Callable[[SparkCheckpoint], None]
) -> None:
    query.run(durable=7, committed=7, recorded=7, planned=7)
    lose(query.spark)
    expected = (7, 8, None) if lose is lose_offsets else (6, 7, ["f7"])
    for _ in range(2):
        assert query.recovers() == expected


def test_a_first_epoch_is_replayed_from_nothing(query: Query) -> None:
    query.run(durable=-1, committed=0, recorded=0, planned=0)
    lose_all(query.spark)
    assert query.recovers() == (-1, 0, ["f0"])


def test_what_was_planned_and_not_recorded_is_planned_afresh(query: Query) -> None:
    """It has reached no sink; and the source forgets the files, so that the next plan is not larger than this one."""
    query.run(durable=5, committed=5, recorded=5, planned=6)
    assert query.recovers() == (5, 6, None)
    assert (query.spark.root / BACKUP / "offsets" / "6").exists()
    assert "f6" not in b"".join(query.spark.files().values()).decode()


def test_where_a_source_began_is_kept(query: Query) -> None:
    """Kafka's first offsets are no part of an epoch: without them, rows between two starts would be skipped."""
    query.spark.start()
    first = query.spark.root / "sources/0/0"
    first.parent.mkdir(parents=True)
    first.write_bytes(b'\0v1\n{"t":{"0":17}}')
    query.start().close()
    assert first.read_bytes() == b'\0v1\n{"t":{"0":17}}'
    first.write_bytes(b'\0v1\n{"t":{"0"')
    query.start().close()
    assert not first.exists()


def test_a_jvm_that_outlives_its_driver_writes_behind_a_start(query: Query) -> None:
    query.run(durable=4, committed=5, recorded=6, planned=6)
    controller = query.start()
    query.spark.plan(6, "f6", "f7")
    controller.trim_spark_logs()
    assert query.spark.resumes() == (5, ["f5"])
    query.spark.plan(6, "f6", "f7")  # once more, when Spark has read its logs: the next start puts it right
    controller.close()
    assert query.recovers() == (4, 5, ["f5"])


def test_a_record_of_a_run_that_was_replaced_counts_no_more(query: Query) -> None:
    """It has planned an epoch behind one that the next run has made durable: what it builds on may be deleted."""
    query.run(durable=2, committed=3, recorded=4, planned=4)
    late = filenames.spark_record_name(4, 0)
    data = query.store.get(late)
    controller = query.start()
    controller.record_spark_logs(3)
    controller.commit(3, 0)
    query.spark.commit(3)
    controller.close()
    query.store.put(late, [data])
    assert query.recovers() == (3, 4, None)


def test_a_replaced_run_records_nothing_that_it_could_release(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controllers, "QueryLock", lambda *_: None)  # on two machines
    older = query.start()
    query.spark.start()
    query.spark.plan(0, "f0")
    newer = Controller.start(query.store, PLAN, SparkLogFolder(query.spark.root.with_name("elsewhere")))
    with pytest.raises(FencedError):
        older.record_spark_logs(0)
    assert newer.recovery_point.epoch == -1


def test_no_record_is_made_of_two_plans(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that slept while it read the logs has read files of its successor's too."""
    monkeypatch.setattr(controllers, "QueryLock", lambda *_: None)  # that of a process that is frozen
    older = query.start()
    query.spark.start()
    query.spark.plan(0, "f0")

    class Slept(SparkLogFolder):
        def read(self, path: str) -> bytes | None:
            if path == "offsets/0":
                Controller.start(query.store, PLAN, SparkLogFolder(query.spark.root)).trim_spark_logs()
                query.spark.plan(0, "f0", "f1")
            return super().read(path)

    monkeypatch.setattr(older, "_spark_logs", Slept(query.spark.root))
    with pytest.raises(FencedError):
        older.record_spark_logs(0)
    assert list(query.store.list(filenames.SPARK_RECORD_PREFIX)) == []


def test_a_list_that_others_have_replaced_is_not_compacted(query: Query) -> None:
    """A late request has taken it away, and the JVM of another driver has written its own under that number."""
    controller = query.start()
    query.spark.start()
    for epoch in range(COMPACT_EVERY - 1):
        query.spark.plan(epoch, f"f{epoch}")
        controller.record_spark_logs(epoch)
        controller.commit(epoch, 0)
        query.spark.commit(epoch)
    replaced = query.spark.root / "sources/0/1"
    replaced.write_text(replaced.read_text().replace("f1", "never-read"))
    query.spark.plan(COMPACT_EVERY - 1, "f3")
    with pytest.raises(RewindNeeded, match=r"compacted sources/0/1 of .*, which is not the list"):
        controller.record_spark_logs(COMPACT_EVERY - 1)
    controller.close()
    assert query.recovers() == (2, 3, None)
    query.spark.plan(COMPACT_EVERY - 1, "f3")
    assert "never-read" not in b"".join(query.spark.files().values()).decode()


def test_a_list_that_was_cut_off_behind_its_compaction_is_no_matter(query: Query) -> None:
    """The epoch with the compact list is replayed. A loss of power has taken a part of a list that went into it."""
    epochs = COMPACT_EVERY - 1
    query.run(durable=epochs - 1, committed=epochs - 1, recorded=epochs, planned=epochs)
    (query.spark.root / "sources/0/1").write_bytes(b"v1")
    controller = query.start()
    controller.trim_spark_logs()
    query.spark.start()
    assert query.spark.resumes() == (epochs, [f"f{epochs}"])
    controller.record_spark_logs(epochs)
    controller.close()


def test_another_querys_checkpoint_is_refused_by_name(query: Query, tmp_path: Path) -> None:
    query.run(durable=2, committed=2, recorded=2, planned=2)
    other = SparkCheckpoint(tmp_path / "other", query="another-one")
    other.start()
    other.plan(0, "f0")
    other.commit(0)
    with pytest.raises(CheckpointError, match=f"other is that of query another-one, .*{query.spark.query}"):
        Controller.start(query.store, PLAN, SparkLogFolder(other.root))
    assert query.recovers() == (2, 3, None)


def test_logs_that_are_further_ahead_than_a_crash_explains_are_refused(query: Query) -> None:
    query.run(durable=3, committed=3, recorded=3, planned=3)
    for epoch in (4, 5):
        query.spark.plan(epoch, f"f{epoch}")
        query.spark.commit(epoch)
    with pytest.raises(CheckpointError, match="do not belong together"):
        query.start()


def test_the_loser_of_two_first_starts_takes_over_later(query: Query, tmp_path: Path) -> None:
    """Its Spark had made a query of its own on its own disk, and planned an epoch of it."""
    query.run(durable=4, committed=4, recorded=4, planned=4)
    won, query.spark = query.spark, SparkCheckpoint(tmp_path / "other", "another-one")
    query.spark.start()
    query.spark.plan(0, "f0", "f1")
    query.spark.query = won.query
    assert query.recovers() == (3, 4, ["f4"])


def test_damaged_entries_and_an_empty_checkpoint_are_no_new_query(query: Query) -> None:
    query.run(durable=4, committed=4, recorded=4, planned=4)
    lose_all(query.spark)
    for each in query.store.list(filenames.LOG_PREFIX):
        data = query.store.get(each.name)
        query.store.put(each.name, [data[:-9] + b"damage!!!"])
    records = query.store.list(filenames.SPARK_RECORD_PREFIX)
    with pytest.raises(CorruptionError):
        query.start()
    assert query.store.list(filenames.SPARK_RECORD_PREFIX) == records, "nothing was taken for an orphan"


def run_on(query: Query, until: int) -> None:
    """From where the start continues, on an empty disk or one of an earlier time."""
    controller = query.start()
    controller.trim_spark_logs()
    query.spark.start()
    first, files = query.spark.resumes()
    assert files in (None, [f"f{first}"])
    for epoch in range(first, until + 1):
        if epoch > first or files is None:
            query.spark.plan(epoch, f"f{epoch}")
        controller.record_spark_logs(epoch)
        controller.commit(epoch, 0, rows={"input": 1})
        controller.clean()
        query.spark.commit(epoch)
    controller.close()


@pytest.mark.parametrize("every", [3, 12])
@pytest.mark.parametrize("first", [4, 7, 9, 12])
def test_a_disk_that_is_lost_again_and_again(query: Query, first: int, every: int) -> None:
    query.run(durable=first, committed=first, recorded=first, planned=first)
    for until in range(first + 1, 46, every):
        lose_all(query.spark)
        run_on(query, until)


def test_a_machine_with_an_old_checkpoint_goes_on(query: Query, tmp_path: Path) -> None:
    query.run(durable=5, committed=5, recorded=5, planned=5)
    shutil.copytree(query.spark.root, tmp_path / "old")
    for until in (12, 21, 30):
        run_on(query, until)
        lose_all(query.spark)
        shutil.copytree(tmp_path / "old", query.spark.root)
        run_on(query, until + 2)


def test_a_lost_record_is_named(query: Query) -> None:
    query.run(durable=2, committed=2, recorded=3, planned=3)
    lose_all(query.spark)
    name = filenames.spark_record_name(2, 0)
    data = query.store.get(name)
    query.store.delete([name])
    with pytest.raises(CorruptionError, match=f"{name} is damaged: it is missing"):
        query.start()
    query.store.put(name, [data])
    assert query.recovers() == (2, 3, ["f3"])


def test_what_is_kept_does_not_grow_with_the_history(query: Query) -> None:
    query.run(durable=40, committed=40, recorded=40, planned=40)
    listing = query.start().manifest(40).spark_logs
    assert len(listing) <= COMPACT_EVERY + 5
    assert len(query.store.list(filenames.SPARK_RECORD_PREFIX)) <= COMPACT_EVERY + 5


class StoppingDisk(Disk):
    """Stops at its ``left``-th change."""

    def __init__(self, left: int) -> None:
        self.left = left

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt

    def write_synced(self, path, parts):
        self._count()
        return super().write_synced(path, parts)

    def replace(self, source, target):
        self._count()
        super().replace(source, target)

    def remove(self, path):
        self._count()
        super().remove(path)


@pytest.mark.parametrize("lose", [nothing, lose_all, lose_newest, halve_newest])
def test_a_start_that_crashes_while_it_rebuilds_is_repeated(
    query: Query, tmp_path: Path, lose: Callable[[SparkCheckpoint], None]
) -> None:
    query.run(durable=4, committed=5, recorded=6, planned=6)
    lose(query.spark)
    query.spark.root.mkdir(exist_ok=True)
    kept = shutil.copytree(query.spark.root, tmp_path / "kept")

    def start(changes: int) -> int:
        """With a disk that stops behind so many changes. How many it would still have made."""
        disk = StoppingDisk(changes)
        Controller.start(query.store, PLAN, SparkLogFolder(query.spark.root, disk)).close()
        return disk.left

    most = 1000
    changes = most - start(most)
    points = range(changes) if LONG or changes < 6 else sorted(random.sample(range(changes), 6))
    assert len(points) > 2
    print(f"{changes} changes; a crash behind {[*points]}")
    for before in points:
        shutil.rmtree(query.spark.root)
        shutil.copytree(kept, query.spark.root)
        with pytest.raises(KeyboardInterrupt):
            start(before)
        with contextlib.suppress(KeyboardInterrupt):
            start(random.randrange(changes))
        assert query.recovers() == (4, 5, ["f5"])


def test_inspect_says_what_a_start_would_do(query: Query) -> None:
    query.run(durable=4, committed=4, recorded=5, planned=5)
    lose_newest(query.spark)
    folder = SparkLogFolder(query.spark.root)
    found = inspect(query.store, folder.epochs("commits"), folder.epochs("offsets"), folder=folder)
    assert "A start would write 5 files of Spark's checkpoint again, such as sources/0/5" in found.verdict()
    assert "open the state of epoch 4 and run epoch 5" in found.verdict()
    assert query.recovers() == (4, 5, ["f5"])
