"""The queries that are killed, in one driver: run by the tests again and again until it ends by itself.

With ``ahead`` sinks are begun before their rows are there. The first query that fails ends the driver: else its error
would be seen only when the others are done, and not at all where the driver is killed before that.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from support.crash.kill_queries import EVERY_CASE, FAILED, TINY
from support.queries.file_sink import FileSink
from support.queries.pipelined_sink import begin_sinks_pipelined
from support.session import on_hosts, session_builder


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
    builder = session_builder(config.get("master", "local[2]"))
    if "host" in config:
        builder = on_hosts(builder, config["host"])
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with ThreadPoolExecutor(len(names)) as pool:
        running = {pool.submit(run, spark, name, config): name for name in names}
        for done in as_completed(running):
            if (error := done.exception()) is not None:
                text = f"{running[done]}: {''.join(traceback.format_exception(error))}"
                (Path(config["root"]) / FAILED).write_text(text)
                print(text, flush=True)
                os._exit(1)
    spark.stop()


if __name__ == "__main__":
    main()
