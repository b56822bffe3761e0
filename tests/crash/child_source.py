"""A query over one of the sources, for tests that kill it. Runs until Spark has committed the epoch ``until``, where
that is given, else to the end of what there is to read.

``hold``: the log entry of this epoch is never put, so that it is not durable while Spark commits it. ``pause``: the
sink of this epoch never ends. ``once``: one epoch and no other is run. ``forget``: Kafka's records before these offsets
are deleted first, by partition.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaMember
from py4j.protocol import STATIC_PREFIX
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from support.crash.source_queries import SOURCES
from support.queries.file_sink import FileSink
from support.session import session_builder
from tailrace.commit.log import CommitLog
from tailrace.commit.manifest import Manifest
from tailrace.commit.spark_logs.log_files import spark_epochs
from tailrace.env.stores.location import open_store
from tailrace.lab.servers.kafka import connector_jars

FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
PACKAGE = "org.apache.spark.sql.execution.streaming.checkpointing"


def hold(epoch: int) -> None:
    append = CommitLog.append_durable

    def held(self: CommitLog, run: str, manifest: Manifest) -> Manifest:
        if manifest.epoch == epoch:
            time.sleep(600)  # the test kills us here
        return append(self, run, manifest)

    CommitLog.append_durable = held  # type: ignore[method-assign]


def forget(spark: SparkSession, config: dict[str, Any]) -> None:
    jvm: Any = spark._jvm
    kafka = jvm.org.apache.kafka
    settings = jvm.java.util.Properties()
    settings.setProperty("bootstrap.servers", config["bootstrap"])
    before = jvm.java.util.HashMap()
    # Named by hand: py4j does not find a static method that has a namesake which is not.
    kind = f"{STATIC_PREFIX}org.apache.kafka.clients.admin.RecordsToDelete"
    before_offset = JavaMember("beforeOffset", None, kind, jvm._gateway_client)
    for partition, offset in config["forget"].items():
        place = kafka.common.TopicPartition(config["topic"], int(partition))
        before.put(place, before_offset(offset))
    admin = kafka.clients.admin.AdminClient.create(settings)
    admin.deleteRecords(before).all().get()
    admin.close()


def main() -> None:
    config = json.loads(sys.argv[1])
    root, case, location = Path(config["root"]), SOURCES[config["source"]], config["location"]
    builder = session_builder("local[2]").config(FILE_MANAGER, f"{PACKAGE}.{config['manager']}")
    for name, value in config.get("confs", {}).items():
        builder = builder.config(name, value)
    if config["source"] == "kafka":
        builder = builder.config("spark.jars", ",".join(map(str, connector_jars())))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if config.get("feed"):
        case.feed(spark, config)
    if "forget" in config:
        forget(spark, config)
    if "hold" in config:
        hold(config["hold"])
    sink = FileSink(root / "out", config.get("pause"))

    def save(batch: DataFrame, epoch: int) -> None:
        with open(root / "calls", "a") as calls:
            calls.write(f"{epoch}\n")
        sink.save(batch, epoch)

    stream = tr.stream(case.frame(spark, config)).groupBy("k").agg(tr.sum("v").alias("total"), tr.count().alias("n"))
    writer = stream.writeStream.outputMode("update").foreachBatch(save)
    writer = writer.option("checkpointLocation", location).options(**config.get("options", {}))
    if (until := config.get("until")) is None:
        query = writer.trigger(availableNow=True).start()
    else:
        query = writer.trigger(processingTime="1 day" if config.get("once") else "0 seconds").start()
        checkpoint = open_store(location)
        while query.isActive and until not in spark_epochs(checkpoint, "commits"):
            time.sleep(0.05)
        query.stop()
    query.awaitTermination()
    query.explain()
    spark.stop()


if __name__ == "__main__":
    main()
