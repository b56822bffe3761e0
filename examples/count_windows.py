"""The mean of every three readings of a device, however long they take to come.

Run it with ``python examples/count_windows.py``.
"""

import tempfile

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from tailrace.testing import ScriptedSource

SCHEMA = pa.schema({"device": pa.string(), "value": pa.float64()})


def readings(*rows: tuple[str, float]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row)) for row in rows], SCHEMA)


def show(rows: DataFrame, epoch: int) -> None:
    for row in rows.orderBy("device", "window").collect():
        print(f"{row.device} {row.window}: mean {row.mean}")


spark = SparkSession.builder.getOrCreate()
with tempfile.TemporaryDirectory() as folder:
    source = ScriptedSource(f"{folder}/readings", SCHEMA)
    source.add(
        [
            readings(("pump", 1.0), ("pump", 2.0), ("fan", 9.0)),
            readings(("pump", 3.0), ("pump", 4.0)),  # the third reading fills window 0, the fourth begins window 1
            readings(("pump", 5.0), ("pump", 6.0)),
        ]
    )
    query = (
        tr.stream(source.stream(spark))
        .groupBy("device", tr.count_window(3))
        .agg(tr.avg("value").alias("mean"))
        .writeStream.foreachBatch(show)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
