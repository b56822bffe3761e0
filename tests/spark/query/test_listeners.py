"""``StreamingQueryListener`` classes as they are written for Spark see Tailrace's queries as they see Spark's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQueryListener

import tailrace as tr
from support.processes import wait_until
from support.queries.simple import SCHEMA, batches
from tailrace.testing import ScriptedSource


class Listener(StreamingQueryListener):
    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def onQueryStarted(self, event: Any) -> None:
        self.events.append(("started", event))

    def onQueryProgress(self, event: Any) -> None:
        self.events.append(("progress", event.progress))

    def onQueryTerminated(self, event: Any) -> None:
        self.events.append(("terminated", event))

    def of(self, run: str) -> list[tuple[str, Any]]:
        return [(kind, event) for kind, event in self.events if str(event.runId) == run]

    def until_terminated(self, run: str) -> list[Any]:
        """The progress of all epochs, once the run has ended for the listener as well."""
        wait_until("the last event", lambda: "terminated" in [kind for kind, _ in self.of(run)], 30)
        kinds = [kind for kind, _ in self.of(run)]
        assert kinds == ["started", *["progress"] * (len(kinds) - 2), "terminated"]
        return [event for kind, event in self.of(run) if kind == "progress"]


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """Of its own: nobody has listened there before."""
    made = spark.newSession()
    tr.enable(made)
    yield made
    tr.disable(made)


def counts(session: SparkSession, path: Path) -> DataFrame:
    source = ScriptedSource(path / "in", SCHEMA)
    late = pa.table([pa.array([1]), pa.array([0], SCHEMA.field("ts").type), pa.array([1])], schema=SCHEMA)
    source.add([*batches(3), late, *batches(4)[3:]])
    rows = source.stream(session).withWatermark("ts", "5 seconds")
    return rows.groupBy(F.window("ts", "10 seconds"), "k").agg(F.count("*").alias("n"))


def run_to_its_end(frame: DataFrame, path: Path) -> Any:
    writer = frame.writeStream.format("noop").queryName("watched").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(path)).start()
    query.awaitTermination()
    return query


def test_a_listener_sees_state_time_and_rows_of_an_unchanged_query(session: SparkSession, tmp_path: Path) -> None:
    early, later = Listener(), Listener()
    session.streams.addListener(early)  # before the session's first query on Tailrace, and after it
    first = run_to_its_end(counts(session, tmp_path), tmp_path / "check")
    session.streams.addListener(later)
    again = run_to_its_end(counts(session, tmp_path / "again"), tmp_path / "again/check")
    for listener, query in ((early, first), (early, again), (later, again)):
        own = query.recentProgress
        seen = listener.until_terminated(query.runId)
        assert {(str(each.id), each.name) for each in seen} == {(query.id, "watched")}
        assert [each.batchId for each in seen] == [each.epoch for each in own] == list(range(5))
        assert sum(each.numInputRows for each in seen) == 201
        for theirs, ours in zip(seen, own, strict=True):
            (state,) = theirs.stateOperators
            assert state.operatorName == "aggregate"
            assert (state.numRowsTotal, state.numRowsUpdated) == (ours.state_rows, ours.state_rows_updated)
            assert state.memoryUsedBytes == ours.state_bytes > 0
            assert state.numRowsDroppedByWatermark == ours.late_rows
            assert theirs.sink.numOutputRows == ours.output_rows
            assert theirs.eventTime == ours["eventTime"]
            assert set(theirs.durationMs) >= {"ingest", "apply", "commit", "addBatch", "triggerExecution", "walCommit"}
        assert [each.stateOperators[0].numRowsDroppedByWatermark for each in seen] == [0, 0, 0, 1, 0]
        assert seen[0].eventTime == {"max": "1970-01-01T00:16:48.000Z", "watermark": "1970-01-01T00:16:43.000Z"}
        rows = [each.stateOperators[0].customMetrics["numOutputRows"] for each in seen]
        assert rows == [0, 0, 8, 0, 0], "one window has ended, with seven keys and rows without one"
    session.streams.removeListener(early)
    session.streams.removeListener(later)


def test_queries_of_spark_are_reported_as_ever(session: SparkSession, tmp_path: Path) -> None:
    run_to_its_end(counts(session, tmp_path), tmp_path / "check")
    tr.disable(session)
    listener = Listener()
    session.streams.addListener(listener)
    query = run_to_its_end(counts(session, tmp_path / "spark"), tmp_path / "spark/check")
    seen = listener.until_terminated(str(query.runId))
    assert {each.stateOperators[0].operatorName for each in seen} == {"stateStoreSave"}
    assert "ingest" not in seen[0].durationMs
    session.streams.removeListener(listener)


def test_the_ui_of_spark_keeps_the_state_of_a_query(session: SparkSession, tmp_path: Path) -> None:
    """By the listener that fills the UI's tab, and what the tab is drawn from. The session of the tests has no UI."""
    jvm: Any = SparkContext._jvm
    context: Any = session.sparkContext
    kept = jvm.org.apache.spark.util.kvstore.InMemoryStore()
    store = jvm.org.apache.spark.status.ElementTrackingStore(kept, context._jsc.sc().conf())
    sparks = jvm.org.apache.spark.sql.streaming.ui.StreamingQueryStatusListener(context._jsc.sc().conf(), store)
    manager: Any = session.streams
    manager._jsqm.addListener(sparks)
    query = run_to_its_end(counts(session, tmp_path), tmp_path / "check")
    shown = jvm.org.apache.spark.sql.execution.ui.StreamingQueryStatusStore(store).allQueryUIData

    def ended() -> bool:
        return shown().size() == 1 and not shown().apply(0).summary().isActive()

    wait_until("the last event", ended, 30)
    data = shown().apply(0)
    assert data.summary().name() == "watched"
    seen = [each.stateOperators()[0].numRowsTotal() for each in data.recentProgress()]
    assert seen == [each.state_rows for each in query.recentProgress] and max(seen) > 0
    assert data.lastProgress().eventTime()["watermark"] == query.lastProgress["eventTime"]["watermark"]
    manager._jsqm.removeListener(sparks)
