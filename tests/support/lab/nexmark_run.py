"""Runs a query over a folder of events to its end, and keeps its output."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from tailrace.lab.workloads.nexmark.events.files import Format
from tailrace.lab.workloads.nexmark.events.schema import Kind, spark_schema
from tailrace.lab.workloads.nexmark.params import Params
from tailrace.lab.workloads.nexmark.queries.version import Mode, Version

JOINS = ("q3", "q4", "q4-beam", "q8", "q9", "q9-beam", "q20")
_KINDS = {
    **dict.fromkeys(("q3", "q8"), (Kind.PERSON, Kind.AUCTION)),
    **dict.fromkeys(("q4", "q4-beam", "q9", "q9-beam", "q20", "q20-kept"), (Kind.AUCTION, Kind.BID)),
}


def read_events(
    spark: SparkSession, folder: str, format: Format = Format.PARQUET, files_per_batch: int | None = 1
) -> DataFrame:
    """A stream over a folder that ``files.write_files`` made, or is making."""
    reader = spark.readStream.schema(spark_schema()).format(format.value)
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_batch)
    return reader.load(folder)


@dataclass(frozen=True)
class Said:
    rows: pa.Table
    """All rows in append mode; in update mode the newest of each key."""
    watermark_ms: int
    """By which the last batch closed windows."""
    late_rows: int


def run(
    spark: SparkSession, version: Version, feed: Path, checkpoint: Path, params: Params, format: Format = Format.PARQUET
) -> Said:
    tables: list[pa.Table] = []

    def keep(rows: DataFrame, epoch: int) -> None:
        tables.append((version.rest(rows, params) if version.rest else rows).toArrow())

    result = version.build(read_events(spark, str(feed), format), params)
    query = (
        result.writeStream.outputMode(version.mode.value)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .foreachBatch(keep)
        .start()
    )
    query.awaitTermination()
    reports = query.recentProgress
    dropped = sum(int(op["numRowsDroppedByWatermark"]) for report in reports for op in report["stateOperators"])
    reported = [report["eventTime"].get("watermark") for report in reports]
    marks = [datetime.fromisoformat(text) for text in reported if text]
    watermark_ms = round(max(marks).timestamp() * 1000) if marks else 0
    rows = version.finish(pa.concat_tables(tables), params)
    return Said(newest(rows, version.keys) if version.mode is Mode.UPDATE else rows, watermark_ms, dropped)


def watermark_ms(query: str, feed: Path, params: Params) -> int:
    """By which Tailrace closes at the end of a feed: the least of the largest times of the kinds that are asked about.

    Windows close by the rows that reach Tailrace, this epoch's included.
    """
    rows = pa.concat_tables(pq.read_table(path) for path in feed.glob("*.parquet"))
    marks = []
    for kind in _KINDS.get(query, (Kind.BID,)):
        column = "auction_expires" if kind is Kind.AUCTION and query in ("q4-beam", "q9-beam") else "dateTime"
        own = rows.filter(pc.equal(rows["event_type"], int(kind)))
        marks.append(pc.max(own[column].cast(pa.int64())).as_py())
    return int(min(marks)) - params.watermark_delay_ms


def newest(rows: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """The last row of each key, in the order in which rows were emitted."""
    numbered = rows.append_column("place", pa.array(range(rows.num_rows), pa.int64()))
    places = numbered.group_by(list(keys)).aggregate([("place", "max")])["place_max"]
    return rows.take(places)
