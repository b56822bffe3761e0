"""Spark and Tailrace as systems under test: ``python -m tailrace.lab.espbench.systems.spark_job``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.errors import TailraceError
from tailrace.lab.engines.peers import ROCKSDB_CONFS
from tailrace.lab.engines.session import start_session
from tailrace.lab.espbench.queries import by_tailrace, plain
from tailrace.lab.espbench.queries.input import messages
from tailrace.lab.espbench.queries.production import Production
from tailrace.lab.espbench.systems.job import Job, Parent
from tailrace.lab.servers.kafka import connector_jars

READY_S = 120
REAL_TIME = "5 seconds"
"""The shortest batch that Spark allows in this mode."""
_RUNS = ("Waiting for", "Processing new data")
ROWS = "row"


def main() -> int:
    parent = Parent()
    job = parent.job()
    return parent.serve(lambda: _run(job, parent))


def _run(job: Job, parent: Parent) -> str | None:
    work = Path(job.work)
    confs = {"spark.jars": ",".join(map(str, connector_jars())), **(ROCKSDB_CONFS if job.system == "spark" else {})}
    spark = start_session(f"espbench {job.system}", work=work, extra=confs, log=work / "spark.log")
    try:
        query = STARTED[job.system](spark, job)
        _wait_until_it_waits(query)
        parent.say_ready()
        why = parent.wait(lambda: None if query.isActive else _why(query))
        query.stop()
        return why
    finally:
        spark.stop()


def _started_on_spark(spark: SparkSession, job: Job) -> Any:
    frame, write = described(spark, job)
    writer = frame.writeStream.option("checkpointLocation", f"{job.work}/checkpoint")
    if write is not None:
        return writer.foreachBatch(write).start()
    to_kafka = writer.format("kafka").option("kafka.bootstrap.servers", job.bootstrap).option("topic", job.output)
    return to_kafka.start()


def _started_on_tailrace(spark: SparkSession, job: Job) -> Any:
    """By the exact sink of Kafka; updates of the database by ``foreachBatch``, which may repeat them."""
    frame, write = described(spark, job)
    streams = [messages(spark, job.bootstrap, topic) for topic in job.inputs]
    if job.query.base == "q2":
        writer = by_tailrace.outliers(streams[0]).select("value").writeStream
    elif job.query.base == "q4":
        low = plain.low_power(streams, job.settings["low_mf03"])
        writer = by_tailrace.machine_power(low, job.database, job.settings["max_age_s"]).writeStream
    else:
        writer = tr.writeStream(frame.select("value") if job.query.to_topic else frame)
    writer = writer.outputMode("append").option("checkpointLocation", f"{job.work}/checkpoint")
    if job.query.to_topic:
        to_kafka = writer.format("kafka").option("kafka.bootstrap.servers", job.bootstrap)
        return to_kafka.option("topic", job.output).option("epochTopic", f"{job.output}-epochs").start()
    return writer.foreachBatch(write).start()


def _started_in_real_time(spark: SparkSession, job: Job) -> Any:
    """Rows pass through a batch of seconds one by one; no Python and no ``foreachBatch`` may be in it."""
    frame, _ = described(spark, job)
    writer: Any = frame.writeStream.outputMode("update").option("checkpointLocation", f"{job.work}/checkpoint")
    to_kafka = writer.format("kafka").option("kafka.bootstrap.servers", job.bootstrap).option("topic", job.output)
    return to_kafka.trigger(realTime=REAL_TIME).start()


STARTED: Mapping[str, Callable[[SparkSession, Job], Any]] = {
    "spark": _started_on_spark,
    "tailrace": _started_on_tailrace,
    "spark-real-time": _started_in_real_time,
}


def described(spark: SparkSession, job: Job) -> tuple[DataFrame, Callable[[DataFrame, int], None] | None]:
    """The query's rows, and how an epoch of them is written where Spark's Kafka sink would lose their order."""
    streams = [messages(spark, job.bootstrap, topic) for topic in job.inputs]
    match job.query.base:
        case "q1":
            return plain.statistics(streams[0]), _in_order(job)
        case "q2":
            return plain.outliers(streams[0]), _in_order(job)
        case "q3":
            return plain.thresholds(streams[0]), None
        case "q4":
            low = plain.low_power(streams, job.settings["low_mf03"])
            return plain.machine_power(low, job.database, job.settings["max_age_s"]), None
        case "q5":
            return streams[0].select(ROWS), _updates(job)
        case _:
            return plain.identity(streams[0]), None


def _in_order(job: Job) -> Callable[[DataFrame, int], None]:
    """By one task, windows in the order of their time, and rows of a window as they are."""

    def write(rows: DataFrame, epoch: int) -> None:
        placed = rows.withColumn("place", F.monotonically_increasing_id())
        ordered = placed.coalesce(1).sortWithinPartitions("at", "place").select("value")
        ordered.write.format("kafka").option("kafka.bootstrap.servers", job.bootstrap).option(
            "topic", job.output
        ).save()

    return write


def _updates(job: Job) -> Callable[[DataFrame, int], None]:
    production = Production(job.database, job.settings["set_wise"])

    def write(rows: DataFrame, epoch: int) -> None:
        table: pa.Table = rows.toArrow()
        production.update(table[ROWS].combine_chunks())

    return write


def _wait_until_it_waits(query: Any) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if not query.isActive:
            raise TailraceError(_why(query))
        if any(said in query.status["message"] for said in _RUNS):
            return
        time.sleep(0.1)
    raise TailraceError(f"the query was not ready within {READY_S} s: {query.status['message']}")


def _why(query: Any) -> str:
    return f"the query ended: {query.exception()}"


if __name__ == "__main__":
    sys.exit(main())
