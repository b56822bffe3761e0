"""A checkpoint that several machines see: a driver that was replaced wakes up and moves files of its successor's.

It looks for a newer driver before each move, so it is one file that it moves, at any time.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.models.spark_checkpoint import SparkCheckpoint
from tailrace.commit.controller import Controller
from tailrace.commit.spark_logs.log_files import SparkLogObjects
from tailrace.env.stores.local_store import LocalStore
from tailrace.errors import RewindNeeded

PLAN = {"q": 1}


class Query:
    """Epoch e reads file ``f<e>``."""

    def __init__(self, root: Path) -> None:
        self.spark = SparkCheckpoint(root / "check")
        self.logs = SparkLogObjects(LocalStore(root / "check"))
        self._store = LocalStore(root / "state")

    def start(self) -> Controller:
        controller = Controller.start(self._store, PLAN, self.logs)
        self.spark.start()
        return controller

    def run(self, controller: Controller, epochs: range) -> None:
        """Of which the last one reaches its sink and is not durable."""
        for epoch in epochs:
            self.spark.plan(epoch, f"f{epoch}")
            controller.record_spark_logs(epoch)
            if epoch < epochs[-1]:
                controller.commit(epoch, 0, rows={"input": 1})
                controller.clean()
                self.spark.commit(epoch)


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(tmp_path)


def test_whatever_a_sleeper_moves_the_epoch_that_a_sink_has_seen_is_run_again(query: Query) -> None:
    controller = query.start()
    query.run(controller, range(10))
    controller.close()
    paths = [path for path in query.spark.files() if not path.endswith(".crc")]  # there are none in an object store
    assert len(paths) > 20
    for path in sorted(paths):
        query.logs.move_to_backup(path)
        controller = query.start()
        controller.trim_spark_logs()
        controller.close()
        assert (controller.recovery_point.epoch, *query.spark.resumes()) == (8, 9, ["f9"]), f"without {path}"


def test_a_sleeper_moves_the_plan_of_an_epoch_when_its_replay_was_decided(query: Query) -> None:
    """Spark plans the epoch afresh then: the sink has seen other rows of it."""
    controller = query.start()
    query.run(controller, range(4))
    controller.close()
    controller = query.start()
    controller.trim_spark_logs()
    query.logs.move_to_backup("offsets/3")
    query.spark.plan(3, "f3", "f4")
    with pytest.raises(RewindNeeded, match=r"offsets/3 of Spark.*was moved or changed when Spark started"):
        controller.record_spark_logs(3)
    controller.close()
    again = query.start()
    again.trim_spark_logs()
    assert (again.recovery_point.epoch, *query.spark.resumes()) == (2, 3, ["f3"])
    again.record_spark_logs(3)
    again.close()


def test_a_sleeper_moves_a_list_of_files_before_spark_reads_it(query: Query) -> None:
    """Spark gives its number to another list then, and would not read what that has."""
    controller = query.start()
    query.run(controller, range(3))
    controller.commit(2, 0, rows={"input": 1})
    query.spark.commit(2)
    controller.close()
    controller = query.start()
    controller.trim_spark_logs()
    query.logs.move_to_backup("sources/0/2")
    query.spark.plan(3, "f3")
    with pytest.raises(RewindNeeded, match=r"sources/0/2 of Spark.*was moved or changed when Spark started"):
        controller.record_spark_logs(3)
    controller.close()
    again = query.start()
    again.trim_spark_logs()
    assert again.recovery_point.epoch == 2 and query.spark.resumes() == (3, None)
    query.spark.plan(3, "f3")
    again.record_spark_logs(3)
    again.close()


@pytest.mark.parametrize("moved", ["offsets/3", "sources/0/3.compact"])
def test_a_sleeper_moves_what_was_just_written_and_is_not_recorded(query: Query, moved: str) -> None:
    """Nothing may be recorded then: the sink would see rows that no replay gives."""
    controller = query.start()
    query.run(controller, range(3))
    controller.commit(2, 0, rows={"input": 1})
    query.spark.commit(2)
    query.spark.plan(3, "f3")
    query.logs.move_to_backup(moved)
    with pytest.raises(RewindNeeded, match="is gone from"):
        controller.record_spark_logs(3)
    controller.close()
    again = query.start()
    again.trim_spark_logs()
    assert again.recovery_point.epoch == 2 and query.spark.resumes() == (3, None)
    again.close()
