"""Raise an alarm for every device that has been silent for a minute: state and a timer for each, in whole batches.

Run it with ``python examples/process.py``.
"""

import tempfile
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from tailrace.testing import ScriptedSource

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = pa.schema({"device": pa.string(), "ts": pa.timestamp("us", tz="UTC")})


def signals(*rows: tuple[str, int]) -> pa.Table:
    """Rows of device and seconds after noon."""
    return pa.Table.from_pylist([{"device": name, "ts": NOON + timedelta(seconds=s)} for name, s in rows], SCHEMA)


def silent(rows: pa.Table, state: pa.Table, due: pa.BooleanArray) -> tuple[pa.Table, pa.Table]:
    """Columns in, columns out: ``state`` has one row for each device that sent something or whose timer has passed."""
    newest = rows.group_by("device").aggregate([("ts", "max")])
    joined = state.append_column("due", due).join(newest, "device")
    heard = pc.is_valid(joined["ts_max"])
    alarms = joined.filter(pc.and_not(joined["due"], heard)).select(["device", "last"])
    last = pc.coalesce(joined["ts_max"], joined["last"])
    until = pc.add(last, pa.scalar(timedelta(minutes=1), pa.duration("us")))
    kept = pa.table({"device": joined["device"], "last": last, "until": until})
    return alarms, kept.filter(heard)  # a device that is not returned is forgotten


def show(rows: DataFrame, epoch: int) -> None:
    for row in rows.collect():
        print(f"alarm: {row.device} is silent since {row['last']:%H:%M:%S}")


spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
with tempfile.TemporaryDirectory() as folder:
    source = ScriptedSource(f"{folder}/signals", SCHEMA)
    source.add([signals(("pump", 5), ("fan", 10)), signals(("fan", 50)), signals(("fan", 100))])
    alarms = (
        tr.stream(source.stream(spark))
        .withWatermark("ts", "10 seconds")
        .groupBy("device")
        .process(silent, "device string, last timestamp", state="last timestamp, until timestamp", timers="until")
    )
    query = (
        alarms.writeStream.foreachBatch(show)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
