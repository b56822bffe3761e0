"""Two operators in one query: count bids by auction and window, then find the auction with the most bids of a window.

Run it with ``python examples/chained.py``.
"""

import tempfile
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.testing import ScriptedSource

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = pa.schema({"auction": pa.int64(), "ts": pa.timestamp("us", tz="UTC")})


def bids(*rows: tuple[int, int]) -> pa.Table:
    """Rows of auction and seconds after noon."""
    return pa.Table.from_pylist([{"auction": a, "ts": NOON + timedelta(seconds=s)} for a, s in rows], SCHEMA)


def show(rows: DataFrame, epoch: int) -> None:
    time = F.date_format("window.start", "HH:mm:ss").alias("start")
    for row in rows.select(time, "auction", "bids").orderBy("start").collect():
        print(f"{row.start}: auction {row.auction} with {row.bids} bids")


spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
with tempfile.TemporaryDirectory() as folder:
    source = ScriptedSource(f"{folder}/bids", SCHEMA)
    source.add([bids((1, 1), (2, 2), (1, 3)), bids((1, 5), (2, 6)), bids((3, 60))])
    counts = (
        tr.stream(source.stream(spark))
        .withWatermark("ts", "5 seconds")
        .groupBy(tr.window("ts", "10 seconds"), "auction")
        .agg(tr.count().alias("bids"))
    )
    query = (
        counts.groupBy("window")
        .topN(1, "bids")
        .writeStream.foreachBatch(show)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
