"""Sinks of files: a driver that was replaced wakes up, and drivers that are killed at every step of a publication."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from support.processes import NoLock, Sandbox, wait_until
from support.queries.engines import tailrace_stream
from support.queries.file_readers import check_readers, rows_found, rows_wanted
from support.queries.simple import ROLLING, Scripted, batches
from support.servers.hdfs_cluster import HdfsCluster
from tailrace.commit import controller as controllers
from tailrace.commit.sink_manifest import SinkManifests
from tailrace.env.files.disk import Disk
from tailrace.env.randomness import short_id
from tailrace.env.stores.local_store import LocalStore
from tailrace.lab.servers.s3 import REGION, S3Server
from tailrace.lab.servers.s3a import s3a_confs
from tailrace.spark.query import start
from tailrace.spark.sinks.contract import SinkEpoch, SinkRun
from tailrace.spark.sinks.files.places import LocalPlace
from tailrace.spark.sinks.files.publication import Publication
from tailrace.testing import expected

CHILD = Path(__file__).parent / "child_file_sink.py"
COLUMNS = ("k", "total", "n")


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


def run_here(query: Scripted, out: Path) -> None:
    writer = tailrace_stream(query.frame(), ROLLING).writeStream.outputMode("update").format("parquet")
    started = writer.option("checkpointLocation", str(query.checkpoint)).trigger(availableNow=True).start(str(out))
    started.awaitTermination()
    started.stop()


def test_a_driver_that_was_replaced_wakes_up_in_its_sink(
    spark: SparkSession, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is past the gate of epoch 2, and writes when its successor has committed that epoch and two more."""
    for module in (controllers, start):
        monkeypatch.setattr(module, "QueryLock", NoLock)
    query, out = Scripted(spark, sandbox.root), sandbox.root / "out"
    query.feed(batches(5))
    zombie = sandbox.start(CHILD, {"root": str(sandbox.root), "out": str(out), "freeze": 2})
    try:
        frozen = sandbox.root / "frozen"
        wait_until("the gate of epoch 2", lambda: frozen.exists() or zombie.poll() is not None, 240, pause=0.05)
        assert frozen.exists(), sandbox.log_tail()
        run_here(query, out)
        epochs = expected(spark, ROLLING, query.fed)
        check_readers(spark, out, epochs, COLUMNS)
        zombie.send_signal(signal.SIGCONT)
        assert zombie.wait(120) != 0, "it has learned that it was replaced"
    finally:
        zombie.kill()
    check_readers(spark, out, epochs, COLUMNS)
    assert "FencedError" in sandbox.log_tail(400)


# Killed at every step, without Spark ---------------------------------------------------------------------------


class DyingDisk(Disk):
    """Its process is killed before step ``die_at``. Reading is no step."""

    def __init__(self, die_at: int = -1) -> None:
        self.steps = 0
        self._die_at = die_at

    def __getattribute__(self, name: str) -> object:
        if name in ("write_synced", "link", "replace", "remove", "remove_folder", "sync", "sync_folder", "make_folder"):
            if self.steps == self._die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            self.steps += 1
        return super().__getattribute__(name)


class Writer:
    """A run that publishes epochs of three files, and cleans up behind them."""

    def __init__(self, root: Path, run: int, disk: Disk) -> None:
        self._root = root
        store = LocalStore(root / "state", disk)
        self._run = SinkRun(f"{run:016x}", 2, store, lambda _: None)
        self._publication = Publication(LocalPlace(root / "out", disk), SinkManifests(store, "output"), self._run)

    def epoch(self, epoch: int) -> None:
        at = SinkEpoch(epoch, 0, again=True)
        if not self._publication.finish(epoch):
            folder = self._root / "out" / self._publication.stage(at)
            for name in ("part-0", "k=1/part-1", "k=2/part-2"):
                path = folder / f"{name}-{self._run.run}"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"{epoch} {name}")
            self._publication.publish(at, lambda: 3)
        self._publication.clean(epoch)


def shown(root: Path) -> list[str]:
    return sorted(path.read_text() for path in (root / "out").glob("tailrace_epoch=*/**/part-*"))


def test_a_publication_is_killed_before_each_of_its_steps(tmp_path: Path) -> None:
    """And the next run goes on with the epoch. Its own steps are the same, so a second crash is one of these again."""
    complete = DyingDisk()
    for epoch in range(4):
        Writer(tmp_path / "complete", 0, complete).epoch(epoch)
    wanted = shown(tmp_path / "complete")
    assert len(wanted) == 12 and complete.steps > 40
    for die_at in range(complete.steps):
        root = tmp_path / str(die_at)
        child = os.fork()
        if not child:
            try:
                disk = DyingDisk(die_at)
                for epoch in range(4):
                    Writer(root, 0, disk).epoch(epoch)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        before = shown(root)
        assert before == wanted[: len(before)] and len(before) % 3 == 0, f"step {die_at}: a reader sees {before}"
        for epoch in range(4):
            # An epoch comes again until its sink is done: the one that was cut short, and none before it.
            if epoch >= len(before) // 3 - 1:
                Writer(root, 1 + epoch, Disk()).epoch(epoch)
        assert shown(root) == wanted, f"killed before step {die_at}"
        assert list((root / "out" / "_tailrace").iterdir()) == [], f"killed before step {die_at}: folders are left"


# Killed at each step, with Spark ------------------------------------------------------------------------------------

KILLS = ("write", "seal", "put", "+put", "move", "+move")


@pytest.mark.long
@pytest.mark.parametrize("system", ["local", "hdfs", "s3"])
@pytest.mark.parametrize("partition_by", [[], ["k"]], ids=["flat", "by k"])
def test_queries_are_killed_at_each_step(
    spark: SparkSession, sandbox: Sandbox, request: pytest.FixtureRequest, system: str, partition_by: list[str]
) -> None:
    query = Scripted(spark, sandbox.root)
    query.feed(batches(len(KILLS) + 2))
    out, confs, environment = str(sandbox.root / "out"), {}, {}
    if system == "hdfs":
        cluster: HdfsCluster = request.getfixturevalue("hdfs")
        out = cluster.hadoop_uri(f"out-{short_id()}")
    if system == "s3":
        s3: S3Server = request.getfixturevalue("s3")
        out, environment = s3.uri(f"{sandbox.mark}/out", "s3a"), s3.environment()
        confs = s3a_confs(s3.endpoint, REGION, sandbox.root)
        del confs["spark.sql.streaming.checkpointFileManagerClass"]  # the checkpoint itself is on the disk
    read = sandbox.root / "read"
    config = {"root": str(sandbox.root), "out": out, "confs": confs, "partition_by": partition_by}
    for step in (*KILLS, *(["file", "+file"] if system == "s3" else [])):
        child = sandbox.start(CHILD, {**config, "kill": step}, environment)
        assert child.wait(180) == -signal.SIGKILL, f"{step}: {sandbox.log_tail()}"
    child = sandbox.start(CHILD, {**config, "read": str(read)}, environment)
    assert child.wait(180) == 0, sandbox.log_tail()
    found = rows_found(ds.dataset(read, format="parquet").to_table(), COLUMNS)
    assert found == rows_wanted(expected(spark, ROLLING, query.fed), COLUMNS)
