"""Count rows in windows, and write the rows that came too late for any of them to a second sink.

Run it with ``python examples/late_rows.py``.
"""

import tempfile
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.testing import ScriptedSource

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = pa.schema({"sensor": pa.string(), "ts": pa.timestamp("us", tz="UTC")})


def readings(*rows: tuple[str, int]) -> pa.Table:
    """Rows of sensor and seconds after noon."""
    return pa.Table.from_pylist([{"sensor": name, "ts": NOON + timedelta(seconds=s)} for name, s in rows], SCHEMA)


def show(rows: DataFrame, epoch: int) -> None:
    times = [F.date_format(f"window.{edge}", "HH:mm:ss").alias(edge) for edge in ("start", "end")]
    for row in rows.select(*times, "n").orderBy("start").collect():
        print(f"{row.start} to {row.end}: {row.n} rows")


def show_late(rows: DataFrame, epoch: int) -> None:
    for row in rows.collect():
        print(f"late: sensor {row.sensor} at {row.ts:%H:%M:%S}")


spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
with tempfile.TemporaryDirectory() as folder:
    source = ScriptedSource(f"{folder}/readings", SCHEMA)
    source.add([readings(("a", 2), ("b", 4)), readings(("a", 30)), readings(("b", 1), ("a", 60))])
    counts = (
        tr.stream(source.stream(spark))
        .withWatermark("ts", "5 seconds")
        .groupBy(tr.window("ts", "10 seconds"))
        .agg(tr.count("sensor").alias("n"))
    )
    query = (
        counts.writeStream.foreachBatch(show)
        .lateRows(show_late)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
