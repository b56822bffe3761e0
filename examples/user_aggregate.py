"""The mean price of each share, weighted by how many were traded: an aggregate of one's own, merged as rows come.

Run it with ``python examples/user_aggregate.py``.
"""

import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from tailrace.testing import ScriptedSource

SCHEMA = pa.schema({"share": pa.string(), "price": pa.float64(), "count": pa.int64()})
means: dict[str, float] = {}


def trades(*rows: tuple[str, float, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row)) for row in rows], SCHEMA)


def update(states: pa.Table, rows: pa.Table, group: pa.Array) -> pa.Table:
    """The states of many shares at once: ``group`` says which row belongs to which."""
    prices, counts = np.asarray(rows["price"]), np.asarray(rows["count"])
    paid = np.bincount(group, prices * counts, minlength=len(states))
    return pa.table({"paid": paid, "count": np.bincount(group, counts, minlength=len(states)).astype(np.int64)})


def merge(left: pa.Table, right: pa.Table) -> pa.Table:
    return pa.table({name: pc.add(left[name], right[name]) for name in ("paid", "count")})


def finish(states: pa.Table) -> pa.Array:
    return pc.divide(states["paid"], states["count"].cast(pa.float64()))


weighted_mean = tr.aggregate({"paid": 0.0, "count": 0}, update, merge, finish, "double")


def upsert(rows: DataFrame, epoch: int) -> None:
    means.update({row.share: row["mean"] for row in rows.collect()})


spark = SparkSession.builder.getOrCreate()
with tempfile.TemporaryDirectory() as folder:
    source = ScriptedSource(f"{folder}/trades", SCHEMA)
    source.add(
        [
            trades(("acme", 10.0, 100), ("acme", 20.0, 300), ("zeta", 5.0, 10)),
            trades(("acme", 30.0, 400)),
        ]
    )
    query = (
        tr.stream(source.stream(spark))
        .groupBy("share")
        .agg(weighted_mean("price", "count").alias("mean"))
        .writeStream.outputMode("update")
        .foreachBatch(upsert)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

for share, mean in sorted(means.items()):
    print(f"{share}: {mean:.2f}")
