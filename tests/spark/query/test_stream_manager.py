"""``spark.streams``, and what a ``StreamingQuery`` answers, for Tailrace's queries beside Spark's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

import tailrace as tr
from support.queries.simple import SCHEMA, batches
from tailrace.errors import RewindNeeded
from tailrace.spark.epoch.runner import EpochRunner
from tailrace.testing import ScriptedSource


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    return spark.newSession()


@pytest.fixture
def source(tmp_path: Path) -> ScriptedSource:
    made = ScriptedSource(tmp_path / "in", SCHEMA)
    made.add(batches(1))
    return made


def writer_of(rows: DataFrame, path: Path) -> Any:
    sums = rows.groupBy("k").agg(F.sum("v").alias("total"))
    writer = tr.writeStream(sums, fallback=False).outputMode("update").queryName("sums")
    return writer.option("checkpointLocation", str(path))


def test_the_session_knows_its_queries_as_they_were_started(
    session: SparkSession, source: ScriptedSource, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = source.stream(session)
    plain = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "plain")).start()
    query = writer_of(rows, tmp_path / "check").format("noop").start()
    try:
        assert isinstance(query, StreamingQuery) and query.isActive
        assert sorted((each.id, type(each)) for each in session.streams.active) == sorted(
            [(query.id, type(query)), (plain.id, StreamingQuery)]
        )
        found: Any = session.streams.get(query.id)
        assert found is query and type(session.streams.get(plain.id)) is StreamingQuery
        assert (found.name, found.exception(), found.status["isTriggerActive"] in (True, False)) == ("sums", None, True)
        found.processAllAvailable()
        found.explain()
        assert "Sink noop of query 'sums'" in capsys.readouterr().out
        last = found.lastProgress
        assert (last.batchId, last.numInputRows, last.stateOperators[0].numRowsTotal) == (0, 50, 8)
        assert last["sources"][0]["description"].startswith("FileStreamSource[")
        assert last.sources[0].numInputRows == 50 and last.sink.description == "ForeachBatchSink"
        assert last.durationMs["triggerExecution"] >= last.durationMs["ingest"] > 0
        assert dict(last) == json.loads(last.json) == found.recentProgress[-1].asDict()
        with pytest.raises(AttributeError, match="numRows"):
            last.stateOperators[0].numRows  # noqa: B018
        found.stop()
        assert session.streams.awaitAnyTermination(60) is True
        again = writer_of(rows, tmp_path / "check").format("noop").start()  # nothing holds the checkpoint any more
        assert again.id == query.id and again.runId != query.runId
        again.stop()
        assert session.streams.get(query.id) is None
    finally:
        plain.stop()
    assert session.streams.active == []


def test_a_query_that_starts_again_has_not_terminated(
    session: SparkSession, source: ScriptedSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = EpochRunner.run
    lost: list[int] = []

    def losing(runner: EpochRunner, batch: DataFrame, epoch: int) -> object:
        if epoch == 1 and not lost:
            lost.append(epoch)
            raise RewindNeeded("a server was lost with the epoch before")
        return runs(runner, batch, epoch)

    def save(batch: DataFrame, epoch: int) -> None:
        if epoch == 2:
            raise ValueError("the table is gone")

    monkeypatch.setattr(EpochRunner, "run", losing)
    query = writer_of(source.stream(session), tmp_path / "check").foreachBatch(save).start()
    first = query.runId
    try:
        query.processAllAvailable()
        source.add(batches(2)[1:])
        query.processAllAvailable()
        assert lost == [1] and query.runId != first
        assert session.streams.awaitAnyTermination(0.2) is False
        assert session.streams.active == [session.streams.get(query.id)] == [query]
        source.add(batches(3)[2:])
        with pytest.raises(StreamingQueryException, match="the table is gone"):
            session.streams.awaitAnyTermination()
        assert not query.isActive and "the table is gone" in str(query.exception())
    finally:
        query.stop()
