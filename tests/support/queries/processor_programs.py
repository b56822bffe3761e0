"""Programs of per-key functions, and what Spark gave for them.

PySpark needs protobuf for ``transformWithState``, which nothing else of ours does: its rows were recorded with Spark
4.3.0, and ``python tests/support/queries/processor_programs.py`` records them anew where protobuf is installed.
``applyInPandasWithState`` needs nothing, and is compared with Spark itself.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from support.queries import processors as p
from support.session import session_builder

RECORDED = Path(__file__).parent / "processors_of_spark.json"


def _begun(grouped: Any) -> Any:
    first = SparkSession.active().createDataFrame([("a", 100), ("z", 200), (None, 300)], "key string, n bigint")
    return grouped.transformWithState(p.BegunCount(), p.OUTPUT, "Append", "EventTime", first.groupBy("key"))


PROCESSORS: dict[str, tuple[str, Any]] = {
    "initial state": ("append", _begun),
    "running count": ("update", lambda g: g.transformWithState(p.RunningCount(), p.OUTPUT, "Update", "None")),
    "sessions with timers": ("append", lambda g: g.transformWithState(p.Sessions(), p.OUTPUT, "Append", "EventTime")),
    "list buffer": ("append", lambda g: g.transformWithStateInPandas(p.Buffer(), p.OUTPUT, "Append", "None")),
    "maps": ("append", lambda g: g.transformWithState(p.Maps(), p.OUTPUT, "append", "none")),
    "maps that expire": (
        "update",
        lambda g: g.transformWithState(p.ExpiringMaps(), p.OUTPUT, "Update", "ProcessingTime"),
    ),
    "maps that last": (
        "update",
        lambda g: g.transformWithState(p.LastingMaps(), p.OUTPUT, "Update", "ProcessingTime"),
    ),
    "timers in processing time": (
        "update",
        lambda g: g.transformWithStateInPandas(p.Alarms(), p.OUTPUT, "Update", "ProcessingTime"),
    ),
}

GROUP_STATES: dict[str, tuple[str, Any]] = {
    "group state by event time": (
        "append",
        lambda g: g.applyInPandasWithState(p.counted, p.OUTPUT, "n bigint, said string", "Append", "EventTimeTimeout"),
    ),
    "group state by processing time": (
        "update",
        lambda g: g.applyInPandasWithState(p.hurried, p.OUTPUT, "n bigint", "Update", "ProcessingTimeTimeout"),
    ),
}


def of_spark(spark: SparkSession, path: Path, name: str) -> dict[int, p.Rows]:
    mode, make = {**PROCESSORS, **GROUP_STATES}[name]
    return p.run("spark", spark, path, make, mode, (p.BATCHES,))


def _record() -> None:
    spark = session_builder("local[2]").getOrCreate()
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", p.ROCKSDB)
    recorded = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in PROCESSORS:
            rows = of_spark(spark, Path(folder) / name, name)
            recorded[name] = [list(map(repr, rows[epoch])) for epoch in sorted(rows)]
    RECORDED.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(_record())
