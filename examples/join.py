"""Join views of ads with the clicks of the next minute, and give views without a click too, once nothing can come.

Run it with ``python examples/join.py``.
"""

import tempfile
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from tailrace.testing import ScriptedSource

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TIME = pa.timestamp("us", tz="UTC")
VIEWS = pa.schema({"ad": pa.int64(), "seen": TIME})
CLICKS = pa.schema({"ad": pa.int64(), "clicked": TIME})


def at(schema: pa.Schema, *rows: tuple[int, int]) -> pa.Table:
    """Rows of ad and seconds after noon."""
    ad, time = schema.names
    return pa.Table.from_pylist([{ad: number, time: NOON + timedelta(seconds=s)} for number, s in rows], schema)


def show(rows: DataFrame, epoch: int) -> None:
    for row in rows.orderBy("ad").collect():
        after = "not clicked" if row.clicked is None else f"clicked after {(row.clicked - row.seen).seconds} s"
        print(f"ad {row.ad}: {after}")


spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
with tempfile.TemporaryDirectory() as folder:
    views = ScriptedSource(f"{folder}/views", VIEWS)
    clicks = ScriptedSource(f"{folder}/clicks", CLICKS)
    views.add([at(VIEWS, (1, 0), (2, 1), (3, 10)), at(VIEWS, (9, 300))])
    clicks.add([at(CLICKS, (1, 20), (3, 15)), at(CLICKS, (8, 300))])
    joined = (
        tr.stream(views.stream(spark))
        .withWatermark("seen", "10 seconds")
        .join(
            tr.stream(clicks.stream(spark)).withWatermark("clicked", "10 seconds"),
            "ad",
            "left",
            within=("0 seconds", "1 minute"),
        )
    )
    query = (
        joined.writeStream.foreachBatch(show)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
