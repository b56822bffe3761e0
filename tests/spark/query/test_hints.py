"""Hints ahead of rows, through Spark: where they come from, what they carry, and that answers stay what they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from support.queries.engines import run
from support.queries.simple import ROLLING, SCHEMA, SECOND, SUMS, Scripted
from tailrace.operators.ingest.hint_spec import HintSpec
from tailrace.server.transport.server_config import Access
from tailrace.spark.hints.points import RULES_CONF, placed, point_conf, points_of
from tailrace.spark.sources.transforms import Transformed, frame_of, then
from tailrace.state.cache.frequency_sketch import SketchSize
from tailrace.testing import Question, ScriptedSource, Windows
from tailrace.testing.shaped_reads import shaped_reads
from tailrace.types import BIGINT, Field

KEYS_EACH = 12_000
NEVER_HOT = {"sketchMemory": "4MB"}
POINTS = hasattr(F, "arrow_udf")
"""Points of Spark's plan are functions of Arrow columns, which PySpark 4.0 has not: there, ingest tasks come first."""
NEVER_ENOUGH = {"hintMargin": "1 hour"}
"""No candidate has so much slack: the first one is taken, whatever the machine's speed."""
SMALL = {
    "memory": "1MB",
    "shards": "8",
}
"""Little memory."""


@pytest.fixture(autouse=True)
def slow_disk(spark: SparkSession) -> Iterator[None]:
    """Slow enough for hints to be worth it, however little they bring."""
    with shaped_reads(spark, 0.001, depth=1024):
        yield


def batches(epochs: int) -> tuple[pa.Table, ...]:
    """Of each epoch's keys, each of which comes once, half are new and half were seen before."""
    made = []
    for epoch in range(epochs):
        numbers = np.arange(epoch * KEYS_EACH, (epoch + 1) * KEYS_EACH)
        again = (np.arange(KEYS_EACH) * 7 + epoch) % max(1, epoch * KEYS_EACH)
        keys = np.where(numbers % 2 == 0, again, numbers) if epoch else numbers
        times = np.full(KEYS_EACH, (1000 + epoch) * SECOND)
        made.append(pa.table([keys, times, numbers], names=SCHEMA.names).cast(SCHEMA))
    return tuple(made)


def more(frame: DataFrame) -> DataFrame:
    return frame.withColumn("w", F.col("v") + 1)


def valid(frame: DataFrame) -> DataFrame:
    return frame.where("w > 0").drop("w")


def summed(stream: Any) -> Any:
    return stream.groupBy("k").agg(tr.sum("v").alias("total"), tr.count().alias("n"))


@pytest.mark.long
def test_points_are_not_in_the_plan_until_wanted(spark: SparkSession, tmp_path: Path) -> None:
    """Off: the plan is that without points. On: keys alone go to Python, before what comes later. Rows stay."""
    ScriptedSource(tmp_path / "in", SCHEMA).add(batches(1))
    rows = spark.read.parquet(str(tmp_path / "in"))

    def late(frame: DataFrame) -> DataFrame:
        return frame.where("v > 100").select("k", "v")

    source = _unchecked(rows, [more, late])
    spec = HintSpec("op", (Field("k", BIGINT),), None, False, 8)
    points = points_of(source, [spec], True, SketchSize())
    assert [point.name for point in points] == ["source", "transform 1", "transform 2"]
    assert [point.name for point in points_of(source, [spec], False, SketchSize())] == ["source", "transform 1"]
    with_points = placed(source, points[:2], Access("run", "token"))
    before = spark.conf.get(RULES_CONF, "")
    plain = _plan(frame_of(source))
    assert _plan(with_points) == plain and "Python" not in plain
    spark.conf.set(RULES_CONF, point_conf(before or "", True))
    try:
        kept = placed(source, points[:2], Access("run", "token"))
        found = _plan(kept)
        assert re.findall(r"ArrowEvalPython \[hint\(([^)]*)\)", found) == ["k", "k"], found
        assert found.index("(v > 100)") < found.index("ArrowEvalPython"), "what comes later stays behind"
        assert "ReadSchema: struct<k:bigint,v:bigint>" in found, "columns that nobody needs are still not read"
        assert kept.count() == with_points.count() == frame_of(source).count()
    finally:
        spark.conf.set(RULES_CONF, before or "")


def _unchecked(frame: DataFrame, steps: list[Any]) -> Any:
    """As the steps of a stream; a batch shows its plan without being started."""
    source = Transformed((), (frame,))
    for step in steps:
        source = then(source, step)
    return source


def _plan(frame: DataFrame) -> str:
    """The physical plan, without the numbers that tell columns and expressions apart."""
    plan = frame._jdf.queryExecution().executedPlan().toString()  # type: ignore[operator]
    return re.sub(r"#\d+L?|rand\(-?\d+\)", "", plan)


def test_hints_of_every_key_go_ahead_of_its_row(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(4))
    stream = summed(tr.stream(query.frame()).transform(more).transform(valid))
    seen = _run(stream, query, {**SMALL, **NEVER_HOT, **NEVER_ENOUGH})
    query.check()
    candidates = [*(("source", "transform 1") if POINTS else ()), "ingest", "staging"]
    assert all(each["candidates"] == candidates for each in seen)
    quiet = [each for each in seen if each["lookahead"] == "staging"]
    assert quiet and not any(each["numHints"] for each in quiet), "none until spilled state was waited for"
    ahead = [each for each in seen if each["lookahead"] == candidates[0]]
    assert ahead, [each["reason"] for each in seen]
    complete = [each for each in ahead if each["numHints"] == KEYS_EACH]  # on a machine that hangs some may be lost
    assert complete and max(each["numHints"] for each in ahead) == KEYS_EACH, "each key once"
    assert all(8 * KEYS_EACH < each["hintBytes"] < 10 * KEYS_EACH for each in complete)
    assert set(ahead[0]["slackMsP99"]) == set(candidates), "all were measured"
    assert "none has slack" in ahead[-1]["reason"]


def _run(stream: Any, query: Scripted, options: dict[str, str]) -> list[dict[str, Any]]:
    """The progress of the (last) operator's lookahead, by epoch."""
    run(stream, query.question, query.checkpoint, options, query.output)
    return [each["lookahead"][-1] for each in query.output.progress]


@pytest.mark.long
def test_before_a_shuffle(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(5))
    stream = summed(tr.stream(query.frame()))
    seen = _run(stream, query, {**SMALL, **NEVER_HOT, **NEVER_ENOUGH, "route": "shuffle"})
    query.check()
    assert seen[0]["candidates"] == ["source", "ingest", "staging"]
    assert max(each["numHints"] for each in seen if each["lookahead"] == "source") == KEYS_EACH


@pytest.mark.long
def test_the_second_of_a_chain_gets_hints_from_the_source(spark: SparkSession, tmp_path: Path) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(5))
    stream = summed(tr.stream(query.frame()).transform(more).dropDuplicates(["v"]))
    seen = _run(stream, query, {**SMALL, **NEVER_HOT, **NEVER_ENOUGH})
    query.check()
    assert seen[0]["operatorName"] == "aggregate-2"
    assert seen[0]["candidates"] == ["source", "ingest", "staging"]
    assert KEYS_EACH in {each["numHints"] for each in seen if each["lookahead"] == "source"}


def test_records_in_panes_get_hints(spark: SparkSession, tmp_path: Path) -> None:
    """A hint for a window has the key and the pane: a point before the event time is computed is no candidate."""
    question = Question(("k",), SUMS, Windows(3600 * SECOND, 3600 * SECOND), "ts", 5 * SECOND, output_mode="update")
    query = Scripted(spark, tmp_path, question)
    query.feed(batches(5))
    later = F.timestamp_micros(F.unix_micros("ts") + 0)
    stream = tr.stream(query.frame()).transform(more).transform(lambda frame: frame.withColumn("ts", later))
    requested = stream.withWatermark("ts", "5 seconds").groupBy(tr.window("ts", "1 hour"), "k")
    seen = _run(
        requested.agg(tr.sum("v").alias("total"), tr.count().alias("n")), query, {**SMALL, **NEVER_HOT, **NEVER_ENOUGH}
    )
    query.check()
    assert seen[0]["candidates"] == ["ingest", "staging"], "before, the time is another"
    ahead = [each for each in seen if each["lookahead"] == "ingest"]
    assert KEYS_EACH in {each["numHints"] for each in ahead}, [each["reason"] for each in seen]
    assert not ahead[-1]["discarded"], "all that was fetched was used"
    metrics = query.output.progress[-1].operators[0].metrics
    assert metrics["hintsFetched"] > 0


@pytest.mark.long
def test_a_point_before_the_key_changes(spark: SparkSession, tmp_path: Path) -> None:
    """Where the plan shows that the key is computed later, an earlier point is no candidate; where it does not, the
    unused fetches show it."""

    def shifted(frame: DataFrame) -> DataFrame:
        return frame.withColumn("k", F.col("k") + 1)

    def opaque(frame: DataFrame) -> DataFrame:
        def other(tables: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for table in tables:
                keys = np.asarray(table.column("k")) ^ 1
                yield pa.RecordBatch.from_arrays([pa.array(keys), *table.columns[1:]], schema=table.schema)

        return frame.mapInArrow(other, frame.schema)

    plain = Scripted(spark, tmp_path / "plain", ROLLING)
    plain.feed(batches(2))
    seen = _run(summed(tr.stream(plain.frame()).transform(shifted).transform(more)), plain, SMALL)
    assert seen[0]["candidates"] == ["transform 1", "ingest", "staging"]

    query = Scripted(spark, tmp_path / "opaque", ROLLING)
    query.feed(batches(4))
    query.feed(_even(4))
    stream = summed(tr.stream(query.frame()).transform(opaque).transform(more))
    seen = _run(stream, query, {**SMALL, **NEVER_HOT, **NEVER_ENOUGH})
    assert seen[0]["candidates"] == ["source", "transform 1", "ingest", "staging"]
    assert "source" in {each["lookahead"] for each in seen}
    assert seen[-1]["lookahead"] == "transform 1" and seen[-1]["discarded"] == ["source"]
    assert "other keys" in seen[-1]["reason"]


def _even(epochs: int) -> tuple[pa.Table, ...]:
    """Even keys that were seen before: behind ``opaque`` they are odd."""
    return tuple(
        pa.table(
            [
                np.arange(0, 2000, 2) + 4000 * epoch,
                np.full(1000, (2000 + epoch) * SECOND),
                np.arange(1000),
            ],
            names=SCHEMA.names,
        ).cast(SCHEMA)
        for epoch in range(epochs)
    )


@pytest.mark.long
def test_a_lookup_table_is_asked_by_hints(spark: SparkSession, tmp_path: Path) -> None:
    """Hints for a table carry the keys themselves; the operator behind it gets hints from the source, too."""
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(5))
    keys = np.arange(5 * KEYS_EACH)
    pq.write_table(pa.table({"k": keys, "name": pa.array([f"name {key}" for key in keys])}), tmp_path / "names.parquet")
    table = tr.table.parquet(str(tmp_path / "names.parquet"), "k")
    stream = summed(tr.stream(query.frame()).transform(more).join(table, "k"))
    _run(stream, query, {**SMALL, **NEVER_HOT, **NEVER_ENOUGH})
    query.check()
    for number, name in enumerate(("lookup", "aggregate-2")):
        seen = [each["lookahead"][number] for each in query.output.progress]
        assert seen[0]["operatorName"] == name and seen[0]["candidates"] == ["source", "ingest", "staging"]
        assert KEYS_EACH in {each["numHints"] for each in seen if each["lookahead"] == "source"}, name
    fetched = [each.operators[0].metrics["hintsFetched"] for each in query.output.progress]
    assert fetched[-1] > 0
