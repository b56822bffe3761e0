"""A query that stops goes on where it was; one that has changed is refused; one checkpoint has one query."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tailrace as tr
from support.processes import TESTS, Sandbox
from support.queries.engines import run, tailrace_stream
from support.queries.simple import ROLLING, SECOND, WINDOWED, Scripted, batches
from tailrace.testing import Aggregate, Question, Windows


@pytest.mark.parametrize("question", [ROLLING, WINDOWED], ids=["rolling", "windowed"])
def test_a_restarted_query_goes_on(spark: SparkSession, tmp_path: Path, question: Question) -> None:
    query = Scripted(spark, tmp_path, question)
    every = batches(9)
    for part in (every[:4], every[4:5], every[5:]):
        query.feed(part)
        query.run()
    query.check()


def test_a_restart_without_new_data_emits_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """In a folder whose name is another as a URI, given as a path and as a URI."""
    query = Scripted(spark, tmp_path / "a folder, 100%20 ä")
    query.feed(batches(2))
    query.run()
    run(tailrace_stream(query.frame(), query.question), query.question, query.checkpoint.as_uri(), output=query.output)
    query.check()
    assert [path.name for path in tmp_path.iterdir()] == ["a folder, 100%20 ä"]


def test_a_restart_with_another_number_of_tasks_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path, WINDOWED)
    every = batches(8)
    before = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        for part, (partitions, route) in enumerate([(2, "shuffle"), (5, "shuffle"), (1, "direct"), (3, "shuffle")]):
            spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
            query.feed(every[2 * part : 2 * part + 2])
            query.run(query.frame().repartition(partitions), route=route)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(before))
    query.check()


def test_stop_and_start_again_in_one_session(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path)
    every = batches(6)
    for part in (every[:2], every[2:4], every[4:]):
        query.feed(part)
        running = query.start()
        running.processAllAvailable()
        assert running.isActive
        running.stop()
        assert not running.isActive
    query.check()


def test_how_a_query_runs_may_change(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path)
    every = batches(4)
    for part, options in zip(
        range(4), [{"combine": "on"}, {"combine": "off", "route": "shuffle"}, {"memory": "64MB"}, {"transport": "tcp"}]
    ):
        query.feed(every[part : part + 1])
        query.run(**options)
    query.check()


CHANGES: dict[str, tuple[Question, dict[str, str], str]] = {
    "shards": (WINDOWED, {"shards": "32"}, r"shards: was 64, is now 32"),
    "keys": (replace(WINDOWED, keys=()), {}, r"group columns: was k.*, is now none"),
    "an aggregate more": (
        replace(WINDOWED, aggregates=(*WINDOWED.aggregates, Aggregate("max", "v", "top"))),
        {},
        r"output 'top': was not there, is now bigint from max\(v\)",
    ),
    "another aggregate": (
        replace(WINDOWED, aggregates=(Aggregate("max", "v", "total"), WINDOWED.aggregates[1])),
        {},
        r"output 'total': was bigint from sum\(v\).*is now bigint from max\(v\)",
    ),
    "window": (replace(WINDOWED, windows=Windows(20 * SECOND, 5 * SECOND)), {}, r"window: was .*10 sec.*20 seconds"),
    "mode": (replace(WINDOWED, output_mode="update"), {}, r"output mode: was append, is now update"),
    "watermark rule": (WINDOWED, {"watermark": "spark"}, r"watermark rule: was tailrace, is now spark"),
}


def test_a_changed_query_is_refused_with_what_differs(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path, WINDOWED)
    every = batches(5)
    query.feed(every[:4])
    query.run()
    for name, (changed, options, message) in CHANGES.items():
        query.question = changed
        with pytest.raises(tr.CheckpointError, match=message) as raised:
            query.run(**options)
        assert "new checkpointLocation" in str(raised.value), name
    # And nothing is lost by having tried.
    query.question = WINDOWED
    query.feed(every[4:])
    query.run()
    query.check()


def test_a_changed_type_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path)
    query.feed(batches(2))
    query.run()
    frame = query.frame()
    with pytest.raises(tr.CheckpointError, match=r"group columns: was k bigint, is now k string"):
        query.run(frame.withColumn("k", frame.k.cast("string")))
    with pytest.raises(tr.CheckpointError, match=r"output 'total'.*bigint.*decimal"):
        query.run(frame.withColumn("v", frame.v.cast("decimal(10,2)")))


def test_a_second_query_on_the_same_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """In the same session, where Spark itself would stop the first without a word; and the first goes on."""
    query = Scripted(spark, tmp_path)
    every = batches(3)
    query.feed(every[:1])
    first = query.start()
    try:
        first.processAllAvailable()
        with pytest.raises(tr.LockedError, match=r"in use by another query of this same process .*query\.stop\(\)"):
            query.start()
        assert first.isActive
        query.feed(every[1:2])
        first.processAllAvailable()
    finally:
        first.stop()
    query.feed(every[2:])
    query.run()
    query.check()


def test_one_checkpoint_with_two_state_locations_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Each location has a lock of its own; the checkpoint has one too."""
    query = Scripted(spark, tmp_path)
    query.feed(batches(1))
    first = query.start(stateLocation=str(tmp_path / "one"))
    try:
        first.processAllAvailable()
        with pytest.raises(tr.LockedError, match=r"in use by another query"):
            query.start(stateLocation=str(tmp_path / "two"))
        assert first.isActive
    finally:
        first.stop()
    assert first.exception() is None


def test_stopping_in_the_middle_of_an_epoch_is_no_failure(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path)
    query.feed(batches(2))
    reached, go_on = threading.Event(), threading.Event()

    def waits(batch: Any, epoch: int) -> None:
        if epoch == 1 and not reached.is_set():
            reached.set()
            go_on.wait(2)
        query.output.save(batch, epoch)

    stream = tailrace_stream(query.frame(), ROLLING).writeStream.outputMode("update").foreachBatch(waits)
    running = stream.option("checkpointLocation", str(query.checkpoint)).start()
    assert reached.wait(60)
    running.stop()
    go_on.set()
    assert running.exception() is None
    assert not running.isActive
    query.run()
    query.check()


def test_a_replay_under_another_delay_closes_the_same_windows(spark: SparkSession, tmp_path: Path) -> None:
    """The delay may be changed at a restart; an epoch that was durable already keeps the one it was made with."""
    query = Scripted(spark, tmp_path, WINDOWED)
    query.feed(batches(6))
    query.run()
    before = query.output.tables.pop(5)
    assert before.num_rows > 0
    for path in query.checkpoint.glob("commits/*5*"):
        path.unlink()
    query.question = replace(WINDOWED, delay=3600 * SECOND)
    query.run()
    assert sorted(map(str, query.output.tables[5].to_pylist())) == sorted(map(str, before.to_pylist()))


@pytest.mark.long
def test_a_second_process_on_the_same_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path)
    query.feed(batches(1))
    first = query.start()
    with Sandbox() as sandbox:
        try:
            first.processAllAvailable()
            config = {"input": str(tmp_path / "in"), "checkpoint": str(query.checkpoint)}
            child = sandbox.start(TESTS / "spark" / "child_simple.py", config)
            assert child.wait(90) == 1
            log = sandbox.log.read_text()
            assert re.search(r"LockedError: The state location .* is in use by process \d+ on ", log), log[-3000:]
            assert first.isActive
        finally:
            first.stop()
        assert sandbox.start(TESTS / "spark" / "child_simple.py", config).wait(90) == 0, sandbox.log_tail()
    query.check()


def test_a_failing_sink_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """The epoch is durable when its sink fails; the restarted query gives it to the sink again, with the same rows."""
    query = Scripted(spark, tmp_path, WINDOWED)
    query.feed(batches(6))
    seen: dict[int, Any] = {}

    def fails_once(batch: Any, epoch: int) -> None:
        if epoch == 3 and 3 not in seen:
            seen[3] = batch.toArrow()
            raise ValueError("the sink is full")
        query.output.save(batch, epoch)

    stream = tailrace_stream(query.frame(), WINDOWED)
    writer = stream.writeStream.foreachBatch(fails_once).option("checkpointLocation", str(query.checkpoint))
    started = writer.trigger(availableNow=True).start()
    with pytest.raises(Exception, match="the sink is full"):
        started.awaitTermination()
    assert sorted(query.output.tables) == [0, 1, 2]
    query.run()
    assert sorted(map(str, seen[3].to_pylist())) == sorted(map(str, query.output.tables[3].to_pylist()))
    query.check()
