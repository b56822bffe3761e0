"""A query without a state over scripted batches: what it asks, what its rows are, and how it is run in parts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr
from support.queries.simple import Scripted, batches

Row = tuple[Any, ...]


def asked(rows: DataFrame) -> DataFrame:
    return rows.where("v % 3 <> 0").select((F.col("k") * 2).alias("k"), "ts", "v")


def passed(fed: tuple[pa.Table, ...]) -> list[Row]:
    rows = [row for table in fed for row in table.to_pylist() if row["v"] % 3]
    return [(None if row["k"] is None else row["k"] * 2, row["ts"], row["v"]) for row in rows]


def ordered(rows: Any) -> list[Row]:
    return sorted((tuple(row) for row in rows), key=str)


def forget_commit(query: Scripted) -> None:
    """As after a crash between our durable entry and Spark's commit."""
    for path in query.checkpoint.glob(f"commits/*{len(query.fed) - 1}*"):
        path.unlink()


def in_parts(query: Scripted, start: Any) -> None:
    """Three runs, of which each finds the last epoch of the one before not committed. ``start``: gets a writer."""
    for part in (batches(5)[:3], batches(5)[3:], ()):
        query.feed(part)
        writer = tr.writeStream(asked(query.frame()), fallback=False).trigger(availableNow=True)
        started = start(writer.option("checkpointLocation", str(query.checkpoint)))
        started.awaitTermination()
        forget_commit(query)
