"""The plain query in a process of its own: runs to the end of the available data, on the given master.

With ``"signal_at": epoch`` it touches ``ready`` in that epoch's sink and goes on forever, for tests that interrupt it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from support.queries.engines import tailrace_stream
from support.queries.simple import ROLLING, SCHEMA, WINDOWED
from support.session import GENERATED, session_builder
from tailrace.testing import ScriptedSource


def main() -> None:
    config = json.loads(sys.argv[1])
    confs = {**GENERATED, **config.get("confs", {})}
    spark = session_builder(config.get("master", "local[2]"), confs).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    question = WINDOWED if config.get("windowed") else ROLLING

    def save(batch: DataFrame, epoch: int) -> None:
        if "output" in config:
            pq.write_table(batch.toArrow(), Path(config["output"]) / f"{epoch:06d}.parquet")
        if epoch == config.get("signal_at"):
            Path(config["output"], "ready").touch()

    frame = ScriptedSource(config["input"], SCHEMA).stream(spark)
    if "partitions" in config:
        frame = frame.repartition(config["partitions"])
    writer = tailrace_stream(frame, question).writeStream.outputMode(question.output_mode).foreachBatch(save)
    for name, value in config.get("options", {}).items():
        writer = writer.option(name, value)
    writer = writer.option("checkpointLocation", config["checkpoint"])
    query = (writer if "signal_at" in config else writer.trigger(availableNow=True)).start()
    query.awaitTermination()
    print("servers", query.lastProgress.servers if query.lastProgress else 0)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
