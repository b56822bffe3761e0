"""The queries that are killed, in one driver: run by the tests again and again until it ends by itself.

With ``ahead`` sinks are begun before their rows are there.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from support.crash.kill_queries import EVERY_CASE, TINY
from support.queries.file_sink import FileSink
from support.queries.pipelined_sink import begin_sinks_pipelined
from support.session import session_builder


def run(spark: SparkSession, name: str, config: dict[str, Any]) -> None:
    """One of the queries, to the end of its input."""
    case = EVERY_CASE[name]
    root = Path(config["root"]) / name
    sink = FileSink(root / "out", config.get("pause", {}).get(name))
    options = {"checkpointLocation": str(root / "check"), **config.get("options", {}).get(name, {})}
    if case.spills:
        options |= {"memory": TINY, "shards": "8"}
    writer = case.stream(root, spark).writeStream.outputMode(case.mode).foreachBatch(sink.save).options(**options)
    sink.query = case.written(writer, root).trigger(availableNow=True).start()
    try:
        sink.query.awaitTermination()
    finally:
        sink.query.stop()


def main() -> None:
    config = json.loads(sys.argv[1])
    names = config["names"]
    if config.get("ahead"):
        begin_sinks_pipelined()
    spark = session_builder(config.get("master", "local[2]")).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with ThreadPoolExecutor(len(names)) as pool:
        for running in [pool.submit(run, spark, name, config) for name in names]:
            running.result()
    spark.stop()


if __name__ == "__main__":
    main()
