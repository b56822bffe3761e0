"""A program that ends without stopping its query, while the query's only server hangs and nobody here can end it."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading

from pyspark.sql import DataFrame

from support.processes import session_servers
from support.queries.engines import tailrace_stream
from support.queries.simple import ROLLING, SCHEMA
from support.session import GENERATED, session_builder
from tailrace.spark.servers import fleet, heartbeat
from tailrace.testing import ScriptedSource


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    config = json.loads(sys.argv[1])
    for module in (fleet, heartbeat):
        module.is_this_machine = lambda host: False
    fleet.end_unresponsive = lambda server: None
    spark = session_builder("local[2]", GENERATED).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    hangs = threading.Event()

    def save(batch: DataFrame, epoch: int) -> None:
        batch.toArrow()
        if epoch == 1 and not hangs.is_set():
            for server in session_servers():
                os.kill(server.pid, signal.SIGSTOP)
            hangs.set()

    frame = ScriptedSource(config["input"], SCHEMA).stream(spark)
    writer = tailrace_stream(frame, ROLLING).writeStream.outputMode("update").foreachBatch(save)
    for name, value in config["options"].items():
        writer = writer.option(name, value)
    writer.option("checkpointLocation", config["checkpoint"]).start()
    assert hangs.wait(60)
    print("main has ended")


if __name__ == "__main__":
    main()
