"""PySpark's stateful processors, as they are, in Tailrace and in Spark: the same rows in the same epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from support.queries import processors as p

PROGRAMS: dict[str, Any] = {
    "running count": lambda g: g.transformWithState(p.RunningCount(), p.OUTPUT, "Update", "None"),
    "sessions with timers": lambda g: g.transformWithState(p.Sessions(), p.OUTPUT, "Append", "EventTime"),
    "list buffer": lambda g: g.transformWithStateInPandas(p.Buffer(), p.OUTPUT, "Append", "None"),
    "maps": lambda g: g.transformWithState(p.Maps(), p.OUTPUT, "append", "none"),
    "maps that expire": lambda g: g.transformWithState(p.ExpiringMaps(), p.OUTPUT, "Update", "ProcessingTime"),
    "maps that last": lambda g: g.transformWithState(p.LastingMaps(), p.OUTPUT, "Update", "ProcessingTime"),
    "timers in processing time": lambda g: g.transformWithStateInPandas(
        p.Alarms(), p.OUTPUT, "Update", "ProcessingTime"
    ),
    "group state by event time": lambda g: g.applyInPandasWithState(
        p.counted, p.OUTPUT, "n bigint, said string", "Append", "EventTimeTimeout"
    ),
    "group state by processing time": lambda g: g.applyInPandasWithState(
        p.hurried, p.OUTPUT, "n bigint", "Update", "ProcessingTimeTimeout"
    ),
}
UPDATE = {"running count", "maps that expire", "maps that last", "timers in processing time"} | {
    "group state by processing time"
}


@pytest.fixture
def rocksdb(spark: SparkSession) -> Any:
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", p.ROCKSDB)
    yield
    spark.conf.unset("spark.sql.streaming.stateStore.providerClass")


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_are_sparks(spark: SparkSession, tmp_path: Path, rocksdb: None, name: str) -> None:
    mode = "update" if name in UPDATE else "append"
    wanted = p.run("spark", spark, tmp_path / "spark", PROGRAMS[name], mode, (p.BATCHES,))
    assert sum(map(len, wanted.values())) > 5, "the test tells nothing"
    found = p.run("tailrace", spark, tmp_path / "tailrace", PROGRAMS[name], mode, (p.BATCHES[:3], p.BATCHES[3:]))
    assert found == wanted
