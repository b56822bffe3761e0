"""Count views by the campaign of their ad, which a database table knows. The table is asked for the ads that come.

Run it with ``python examples/lookup.py``. Redis has ``tr.table.redis(...)``, files have ``tr.table.parquet(...)``.
"""

import sqlite3
import tempfile

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from tailrace.testing import ScriptedSource

SCHEMA = pa.schema({"ad": pa.int64(), "user": pa.string()})


def views(*rows: tuple[int, str]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row)) for row in rows], SCHEMA)


def show(rows: DataFrame, epoch: int) -> None:
    for row in rows.orderBy("campaign").collect():
        print(f"{row.campaign}: {row.views} views")


spark = SparkSession.builder.getOrCreate()
with tempfile.TemporaryDirectory() as folder:
    database = f"{folder}/ads.db"
    with sqlite3.connect(database) as connection:
        connection.execute("create table ads (ad integer primary key, campaign text)")
        connection.executemany("insert into ads values (?, ?)", [(1, "sport"), (2, "sport"), (3, "music")])

    campaigns = tr.table.dbapi(
        lambda: sqlite3.connect(database, check_same_thread=False),  # called in the state servers
        "select ad, campaign from ads where ad in ({keys})",
        key="ad",
        schema="campaign string",
    )
    source = ScriptedSource(f"{folder}/views", SCHEMA)
    source.add([views((1, "ann"), (2, "bob"), (3, "ann")), views((1, "cem"), (7, "dan"))])  # no ad has the number 7
    query = (
        tr.stream(source.stream(spark))
        .join(campaigns, "ad")
        .groupBy("campaign")
        .agg(tr.count().alias("views"))
        .writeStream.outputMode("update")
        .foreachBatch(show)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
