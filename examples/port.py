"""A PySpark query as it is, on Tailrace: the busy channels of each ten seconds. One line is another than on Spark.

Run it with ``python examples/port.py``.
"""

import tempfile
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.testing import ScriptedSource

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = pa.schema({"channel": pa.string(), "price": pa.int64(), "ts": pa.timestamp("us", tz="UTC")})


def bids(*rows: tuple[str, int, int]) -> pa.Table:
    """Rows of channel, price and seconds after noon."""
    return pa.Table.from_pylist(
        [{"channel": channel, "price": price, "ts": NOON + timedelta(seconds=s)} for channel, price, s in rows], SCHEMA
    )


def busy(rows: DataFrame) -> DataFrame:
    """The query that somebody has written for Spark."""
    return (
        rows.withWatermark("ts", "10 seconds")
        .groupBy(F.window("ts", "10 seconds"), F.upper("channel").alias("channel"))
        .agg(F.count("*").alias("bids"), F.max(F.col("price") * 2).alias("top"))
        .where("bids > 1")
        .select("channel", F.date_format("window.start", "HH:mm:ss").alias("start"), "bids", "top")
    )


def show(rows: DataFrame, epoch: int) -> None:
    for row in rows.orderBy("start", "channel").collect():
        print(f"{row.start}  {row.channel}: {row.bids} bids, top {row.top}")


spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
with tempfile.TemporaryDirectory() as folder:
    source = ScriptedSource(f"{folder}/bids", SCHEMA)
    source.add([bids(("web", 10, 1), ("App", 30, 4), ("Web", 50, 6)), bids(("app", 20, 9), ("app", 70, 12))])
    source.add([bids(("web", 90, 40))])
    counts = busy(source.stream(spark))
    query = (
        tr.writeStream(counts)  # was: counts.writeStream
        .foreachBatch(show)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
