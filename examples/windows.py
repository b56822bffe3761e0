"""Count bids by auction in windows of ten seconds, each given once, when the watermark has passed its end.

Run it with ``python examples/windows.py``.
"""

import tempfile
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.testing import ScriptedSource

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = pa.schema({"auction": pa.int64(), "price": pa.int64(), "ts": pa.timestamp("us", tz="UTC")})


def bids(*rows: tuple[int, int, int]) -> pa.Table:
    """Rows of auction, price and seconds after noon."""
    return pa.Table.from_pylist(
        [{"auction": auction, "price": price, "ts": NOON + timedelta(seconds=s)} for auction, price, s in rows], SCHEMA
    )


def show(rows: DataFrame, epoch: int) -> None:
    times = [F.date_format(f"window.{edge}", "HH:mm:ss").alias(edge) for edge in ("start", "end")]
    for row in rows.select(*times, "auction", "bids", "best").orderBy("start", "auction").collect():
        print(f"{row.start} to {row.end}  auction {row.auction}: {row.bids} bids, best {row.best}")


spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
with tempfile.TemporaryDirectory() as folder:
    source = ScriptedSource(f"{folder}/bids", SCHEMA)  # each batch is one epoch
    source.add([bids((1, 10, 1), (1, 30, 4), (2, 50, 6)), bids((1, 20, 9), (2, 70, 12)), bids((1, 90, 40))])
    counts = (
        tr.stream(source.stream(spark))
        .withWatermark("ts", "10 seconds")
        .groupBy(tr.window("ts", "10 seconds"), "auction")
        .agg(tr.count().alias("bids"), tr.max("price").alias("best"))
    )
    query = (
        counts.writeStream.foreachBatch(show)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
