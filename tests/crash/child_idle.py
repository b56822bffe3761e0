"""A query whose windows end by silence, until it is told to stop."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import tailrace as tr
from support.queries.file_sink import FileSink
from support.queries.simple import SCHEMA
from support.session import session_builder
from tailrace.testing import ScriptedSource


def main() -> None:
    config: dict[str, Any] = json.loads(sys.argv[1])
    root = Path(config["root"])
    spark = session_builder("local[2]").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    rows = tr.stream(ScriptedSource(root / "in", SCHEMA).stream(spark)).withWatermark("ts", config["delay"])
    counts = rows.groupBy(tr.window("ts", "1 second"), "k").agg(tr.count().alias("n"), tr.sum("v").alias("total"))
    query = (
        counts.writeStream.foreachBatch(FileSink(root / "out").save)
        .option("checkpointLocation", str(root / "check"))
        .option("idleTimeout", "1 second")
        .option("commit", config["commit"])
        .start()
    )
    while query.isActive and not (root / "stop").exists():
        query.awaitTermination(0.1)
    query.stop()
    assert query.exception() is None, query.exception()
    spark.stop()


if __name__ == "__main__":
    main()
