"""PySpark's per-key functions, as they are, in Tailrace and in Spark: the same rows in the same epochs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tailrace as tr
from support.queries import processors as p
from support.queries.processor_programs import GROUP_STATES, PROCESSORS, RECORDED, of_spark

RESTARTED = ("initial state", "sessions with timers", "maps that last", "group state by event time")


def of_tailrace(spark: SparkSession, path: Path, name: str) -> dict[int, p.Rows]:
    mode, make = {**PROCESSORS, **GROUP_STATES}[name]
    parts = (p.BATCHES[:3], p.BATCHES[3:]) if name in RESTARTED else (p.BATCHES,)
    return p.run("tailrace", spark, path, make, mode, parts)


@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", PROCESSORS)
def test_rows_of_processors_are_those_that_spark_gave(spark: SparkSession, tmp_path: Path, name: str) -> None:
    found = of_tailrace(spark, tmp_path, name)
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))[name]
    assert [list(map(repr, found[epoch])) for epoch in sorted(found)] == recorded


@pytest.mark.drawn(1)
@pytest.mark.parametrize("name", GROUP_STATES)
def test_rows_of_group_states_are_sparks(spark: SparkSession, tmp_path: Path, name: str) -> None:
    wanted = of_spark(spark, tmp_path / "spark", name)
    assert sum(map(len, wanted.values())) > 5, "the test tells nothing"
    assert of_tailrace(spark, tmp_path / "tailrace", name) == wanted


def test_what_cannot_be_kept_is_refused_before_it_runs(spark: SparkSession, tmp_path: Path) -> None:
    source = p.ScriptedSource(tmp_path / "in", p.SCHEMA)
    stream = tr.stream(source.stream(spark))

    def processed(keyed: Any = None, mode: str = "None", **more: Any) -> Any:
        return (keyed or stream.groupBy("k")).transformWithState(p.Maps(), p.OUTPUT, "Append", mode, **more)

    with pytest.raises(tr.AnalysisError, match="timers in event time go by the watermark"):
        processed(mode="EventTime")
    with pytest.raises(tr.AnalysisError, match="state 'map' has a time-to-live, which is in processing time"):
        stream.groupBy("k").transformWithState(p.LastingMaps(), p.OUTPUT, "Append", "None")
    with pytest.raises(tr.AnalysisError, match="initialState takes a static DataFrame"):
        processed(initialState="k")
    with pytest.raises(tr.AnalysisError, match="by the types of the stream's keys"):
        processed(initialState=spark.range(3).groupBy("id"))
    with pytest.raises(tr.AnalysisError, match="takes a StatefulProcessor, but got 'p'"):
        stream.groupBy("k").transformWithState("p", p.OUTPUT, "Append", "None")
    with pytest.raises(tr.AnalysisError, match="timeoutConf must be one of"):
        stream.groupBy("k").applyInPandasWithState(p.counted, p.OUTPUT, "n bigint", "Append", "never")
    with pytest.raises(tr.AnalysisError, match="needs group columns"):
        processed(stream.groupBy())
    writer = processed().writeStream.outputMode("update").option("checkpointLocation", str(tmp_path / "check"))
    with pytest.raises(tr.AnalysisError, match="with the output mode 'append', and the query has 'update'"):
        writer.format("noop").start()


def test_a_processor_that_fails_names_itself(spark: SparkSession, tmp_path: Path) -> None:
    class Wrong(p.Maps):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            self._kept.update(("no number",))
            return iter(())

    with pytest.raises(Exception, match="state 'kept' was given a value of 'n' that is no bigint"):
        p.run(
            "tailrace",
            spark,
            tmp_path,
            lambda g: g.transformWithState(Wrong(), p.OUTPUT, "Append", "None"),
            "append",
            (p.BATCHES[:1],),
        )
