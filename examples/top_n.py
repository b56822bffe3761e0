"""Keep the two best bids of each auction, always up to date, in a table that holds one row a rank.

Run it with ``python examples/top_n.py``.
"""

import tempfile

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from tailrace.testing import ScriptedSource

SCHEMA = pa.schema({"auction": pa.int64(), "bidder": pa.string(), "price": pa.int64()})
best: dict[tuple[int, int], str] = {}  # stands for a database table with the key (auction, rank)


def bids(*rows: tuple[int, str, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row)) for row in rows], SCHEMA)


def upsert(rows: DataFrame, epoch: int) -> None:
    """Each changed auction comes with all of its ranks, so that a replayed epoch changes nothing."""
    for row in rows.collect():
        best[row.auction, row["rank"]] = f"{row.bidder} {row.price}"


spark = SparkSession.builder.getOrCreate()
with tempfile.TemporaryDirectory() as folder:
    source = ScriptedSource(f"{folder}/bids", SCHEMA)
    source.add(
        [
            bids((1, "ann", 50), (1, "bob", 70), (2, "cem", 40)),
            bids((1, "ann", 90), (1, "dan", 60)),
        ]
    )
    query = (
        tr.stream(source.stream(spark))
        .groupBy("auction")
        .topN(2, "price")
        .writeStream.outputMode("update")
        .foreachBatch(upsert)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

for auction in sorted({auction for auction, _ in best}):
    ranks = sorted(rank for of, rank in best if of == auction)
    print(f"auction {auction}: " + ", ".join(f"{rank}. {best[auction, rank]}" for rank in ranks))
