"""Pass each order on once, and remember its number for a minute of event time, not for ever.

Run it with ``python examples/deduplicate.py``.
"""

import tempfile
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from tailrace.testing import ScriptedSource

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = pa.schema({"order": pa.int64(), "ts": pa.timestamp("us", tz="UTC")})


def orders(*rows: tuple[int, int]) -> pa.Table:
    """Rows of order number and seconds after noon."""
    return pa.Table.from_pylist([{"order": number, "ts": NOON + timedelta(seconds=s)} for number, s in rows], SCHEMA)


def show(rows: DataFrame, epoch: int) -> None:
    print(f"epoch {epoch}: " + ", ".join(f"order {row.order}" for row in rows.orderBy("order").collect()))


spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
with tempfile.TemporaryDirectory() as folder:
    source = ScriptedSource(f"{folder}/orders", SCHEMA)
    source.add(
        [
            orders((1, 0), (2, 5), (1, 6)),
            orders((1, 30), (2, 40), (3, 300)),  # 1 and 2 are known; 3 moves the watermark to four minutes after noon
            orders((1, 310), (4, 320)),  # 1 was forgotten, and comes as a new order
        ]
    )
    query = (
        tr.stream(source.stream(spark))
        .withWatermark("ts", "1 minute")
        .dropDuplicatesWithinWatermark(["order"])
        .writeStream.foreachBatch(show)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
