"""The alarm of ``process.py`` as a ``StatefulProcessor`` of PySpark's, unchanged: key by key, in Python.

Run it with ``python examples/processor.py``.
"""

import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

import tailrace as tr
from tailrace.testing import ScriptedSource

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = pa.schema({"device": pa.string(), "ts": pa.timestamp("us", tz="UTC")})


def signals(*rows: tuple[str, int]) -> pa.Table:
    """Rows of device and seconds after noon."""
    return pa.Table.from_pylist([{"device": name, "ts": NOON + timedelta(seconds=s)} for name, s in rows], SCHEMA)


class Silent(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.handle = handle
        self.last = handle.getValueState("last", "ms bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        newest = max(int(row.ts.timestamp() * 1000) for row in rows)
        self.last.update((newest,))
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(newest + 60_000)
        return iter([])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield Row(device=key[0], last=datetime.fromtimestamp(self.last.get()[0] / 1000, UTC))
        self.last.clear()


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
        .transformWithState(Silent(), "device string, last timestamp", outputMode="Append", timeMode="EventTime")
    )
    query = (
        alarms.writeStream.foreachBatch(show)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
