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
from tailrace.lab.espbench.systems.job import Job, asked, say, until_asked_to_end
from tailrace.lab.servers.kafka import connector_jars

READY_S = 120
ROWS = "row"


def main() -> int:
    job = asked()
    work = Path(job.work)
    confs = {"spark.jars": ",".join(map(str, connector_jars())), **(ROCKSDB_CONFS if job.system == "spark" else {})}
    try:
        spark = start_session(f"espbench {job.system}", work=work, extra=confs, log=work / "spark.log")
        try:
            query = STARTED[job.system](spark, job)
            _wait_until_it_waits(query)
            say(ready=True)
            error = until_asked_to_end(lambda: None if query.isActive else _why(query))
            query.stop()
        finally:
            spark.stop()
    except Exception as failed:
        say(error=f"{type(failed).__name__}: {failed}")
        return 1
    if error is not None:
        say(error=error)
        return 1
    return 0


def _started_on_spark(spark: SparkSession, job: Job) -> Any:
    frame, write = described(spark, job)
    writer = frame.writeStream.option("checkpointLocation", f"{job.work}/checkpoint")
    if write is not None:
        return writer.foreachBatch(write).start()
    to_kafka = writer.format("kafka").option("kafka.bootstrap.servers", job.bootstrap).option("topic", job.output)
    return to_kafka.start()


def _started_on_tailrace(spark: SparkSession, job: Job) -> Any:
    """Stateful queries by the exact sink; what keeps no state is left to Spark, and its epochs to ``foreachBatch``."""
    frame, write = described(spark, job)
    if job.query.key == "q2":
        stream = messages(spark, job.bootstrap, job.inputs[0])
        writer = by_tailrace.outliers(stream).select("value").writeStream
    else:
        writer = tr.writeStream(frame.select("value") if job.query.to_topic else frame)
    writer = writer.outputMode("append").option("checkpointLocation", f"{job.work}/checkpoint")
    if job.query.key in ("q1", "q2"):
        to_kafka = writer.format("kafka").option("kafka.bootstrap.servers", job.bootstrap)
        return to_kafka.option("topic", job.output).option("epochTopic", f"{job.output}-epochs").start()
    return writer.foreachBatch(write or _to_kafka(job)).start()


def _to_kafka(job: Job) -> Callable[[DataFrame, int], None]:
    def write(rows: DataFrame, epoch: int) -> None:
        to_kafka = rows.write.format("kafka").option("kafka.bootstrap.servers", job.bootstrap)
        to_kafka.option("topic", job.output).save()

    return write


STARTED: Mapping[str, Callable[[SparkSession, Job], Any]] = {
    "spark": _started_on_spark,
    "tailrace": _started_on_tailrace,
}


def described(spark: SparkSession, job: Job) -> tuple[DataFrame, Callable[[DataFrame, int], None] | None]:
    """The query's rows, and how an epoch of them is written where Spark's Kafka sink would lose their order."""
    streams = [messages(spark, job.bootstrap, topic) for topic in job.inputs]
    match job.query.key:
        case "q1":
            return plain.statistics(streams[0]), _in_order(job)
        case "q2":
            return plain.outliers(streams[0]), _in_order(job)
        case "q3":
            return plain.thresholds(streams[0]), None
        case "q4":
            return plain.machine_power(streams, job.database, job.settings["low_mf03"]), None
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
        if "Waiting for" in query.status["message"]:
            return
        time.sleep(0.1)
    raise TailraceError(f"the query was not ready within {READY_S} s: {query.status['message']}")


def _why(query: Any) -> str:
    return f"the query ended: {query.exception()}"


if __name__ == "__main__":
    sys.exit(main())
