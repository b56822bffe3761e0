"""Gather the pages that a visitor opens into visits: sessions that end when half a minute passes without a page.

Run it with ``python examples/sessions.py``.
"""

import tempfile
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.testing import ScriptedSource

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = pa.schema({"visitor": pa.string(), "ts": pa.timestamp("us", tz="UTC")})


def pages(*rows: tuple[str, int]) -> pa.Table:
    """Rows of visitor and seconds after noon."""
    return pa.Table.from_pylist([{"visitor": who, "ts": NOON + timedelta(seconds=s)} for who, s in rows], SCHEMA)


def show(rows: DataFrame, epoch: int) -> None:
    times = [F.date_format(f"visit.{edge}", "HH:mm:ss").alias(edge) for edge in ("start", "end")]
    for row in rows.select("visitor", *times, "pages").orderBy("visitor", "start").collect():
        print(f"{row.visitor}: {row.pages} pages from {row.start} to {row.end}")


spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
with tempfile.TemporaryDirectory() as folder:
    source = ScriptedSource(f"{folder}/pages", SCHEMA)
    source.add(
        [
            pages(("ada", 0), ("ada", 20), ("bob", 10)),
            pages(("ada", 10)),  # comes later, and belongs to the same visit
            pages(("ada", 300)),
            pages(("bob", 900)),
        ]
    )
    visits = (
        tr.stream(source.stream(spark))
        .withWatermark("ts", "1 minute")
        .groupBy(tr.session_window("ts", "30 seconds").alias("visit"), "visitor")
        .agg(tr.count().alias("pages"))
    )
    query = (
        visits.writeStream.foreachBatch(show)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
