"""Retried tasks, duplicate attempts, retried stages: a row counts once however often Spark runs its task.

Attempt numbers restart when a stage is retried, so that only Spark's globally unique attempt id tells attempts apart.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from support.queries.simple import ROLLING, WINDOWED, Scripted, batches
from tailrace.testing import Question


@pytest.mark.parametrize(
    ("question", "route"),
    [
        pytest.param(ROLLING, "shuffle", id="rolling-shuffle", marks=pytest.mark.long),
        pytest.param(WINDOWED, "direct", id="windowed-direct"),
    ],
)
def test_a_task_that_fails_at_first(spark: SparkSession, tmp_path: Path, question: Question, route: str) -> None:
    """It fails after half of its rows have been sent, in every epoch, in every partition."""
    query = Scripted(spark, tmp_path, question)
    query.feed(batches(4, rows=200))
    marks = tmp_path / "marks"
    marks.mkdir()

    def fails(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for batch in rows:
            yield batch.slice(0, batch.num_rows // 2)
            if context.attemptNumber() == 0:
                (marks / f"{context.taskAttemptId()}").touch()
                raise RuntimeError("this attempt fails on purpose")
            yield batch.slice(batch.num_rows // 2)

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "30")
    try:
        frame = query.frame()
        query.run(frame.repartition(3).mapInArrow(fails, frame.schema), route=route)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert len(list(marks.iterdir())) >= 4
    query.check()


def test_a_task_that_fails_after_all_its_rows_were_sent(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path)
    query.feed(batches(3))

    def fails(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        yield from rows
        if context.attemptNumber() < 2:
            raise RuntimeError("this attempt fails on purpose")

    frame = query.frame()
    query.run(frame.mapInArrow(fails, frame.schema))
    query.check()


def test_a_task_that_always_fails_ends_the_query_and_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path)
    query.feed(batches(3))
    broken = tmp_path / "broken"
    broken.touch()

    def fails(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            yield batch
            if broken.exists():
                raise RuntimeError("this task always fails")

    frame = query.frame()
    with pytest.raises(Exception, match="this task always fails"):
        query.run(frame.mapInArrow(fails, frame.schema))
    broken.unlink()
    query.run(frame.mapInArrow(fails, frame.schema))
    query.check()


@pytest.mark.parametrize(
    "question", [pytest.param(ROLLING, id="rolling", marks=pytest.mark.long), pytest.param(WINDOWED, id="windowed")]
)
def test_a_lost_shuffle_retries_the_stage(spark: SparkSession, tmp_path: Path, question: Question) -> None:
    """A fast map task's shuffle file is deleted while a slow one still runs: the reduce stage cannot fetch it."""
    # Two files an epoch are two map tasks, and there is no other shuffle than the route's.
    query = Scripted(spark, tmp_path, question, files_per_epoch=2)
    query.feed(batches(3, rows=400))
    maps = tmp_path / "maps"
    slept = tmp_path / "slept"
    for folder in (maps, slept):
        folder.mkdir()

    def slow(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        (maps / f"{context.stageId()}-{context.partitionId()}-{context.taskAttemptId()}").touch()
        yield from rows
        if context.partitionId() == 0:
            try:
                os.mkdir(slept / str(context.stageId()))
            except FileExistsError:
                return  # the stage's second attempt
            time.sleep(1.5)

    frame = query.frame()
    with ShuffleEater(Path(os.environ["SPARK_LOCAL_DIRS"]), eaten_max=2) as eater:
        query.run(frame.mapInArrow(slow, frame.schema), route="shuffle")
    assert len(eater.eaten) == 2
    ran = sorted(path.name for path in maps.iterdir())
    assert len(ran) >= 3 * 2 + len(eater.eaten), f"three epochs of two map tasks, and no stage retried: {ran}"
    query.check()


class ShuffleEater:
    """Deletes a shuffle's data file as soon as it is whole, a bounded number of times, one shuffle once."""

    def __init__(self, folder: Path, eaten_max: int) -> None:
        self._folder = folder
        self._eaten_max = eaten_max
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._known = {path.name for path in folder.rglob("shuffle_*.index")}
        self.eaten: dict[str, str] = {}

    def __enter__(self) -> ShuffleEater:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.is_set() and len(self.eaten) < self._eaten_max:
            for path in self._folder.rglob("shuffle_*.index"):
                shuffle = path.name.split("_")[1]
                # Only of the shuffle behind the slow tasks: there one map output waits for the other.
                if path.name in self._known or shuffle in self.eaten or len(self.eaten) >= self._eaten_max:
                    continue
                if self._alone(path, shuffle):
                    path.with_suffix(".data").unlink(missing_ok=True)
                    path.unlink(missing_ok=True)
                    self.eaten[shuffle] = path.name
            time.sleep(0.002)

    def _alone(self, path: Path, shuffle: str) -> bool:
        """Whether this is the first output of its shuffle and stays so for a while: the other map task sleeps."""
        time.sleep(0.3)
        return path.exists() and len(list(self._folder.rglob(f"shuffle_{shuffle}_*.index"))) == 1


def test_the_session_retries(spark: SparkSession) -> None:
    assert str(spark.sparkContext.master) == "local[2,4]"


def test_frames_are_what_they_seem(spark: SparkSession, tmp_path: Path) -> None:
    """Several files and several Arrow batches an epoch, through both routes."""
    query = Scripted(spark, tmp_path, WINDOWED)
    query.feed(batches(4, rows=500))
    frame: DataFrame = query.frame().repartition(5)
    query.run(frame, route="shuffle", combine="off")
    query.check()
