"""Q13 on Tailrace: bids with the rows of a lookup table, in Parquet files, of which servers cache what is looked up."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.lab.workloads.nexmark.params import Params, side_table
from tailrace.lab.workloads.nexmark.queries.views import bids


def q13_tailrace(events: DataFrame, params: Params) -> Any:
    def keyed(bids: DataFrame) -> DataFrame:
        return bids.withColumn("key", key_of(params))

    return joined(tr.stream(events).transform(bids).transform(keyed), events.sparkSession, params)


def key_of(params: Params) -> Column:
    return F.col("auction") % params.side_rows


def joined(keyed: Any, spark: SparkSession, params: Params) -> Any:
    """A stream of bids with their keys, joined."""

    def asked(bids: DataFrame) -> DataFrame:
        return bids.select("auction", "bidder", "price", "dateTime", "key")

    side = tr.table.parquet(side_files(spark, params), "key")
    return (
        keyed.transform(asked).withWatermark("dateTime", f"{params.watermark_delay_ms} milliseconds").join(side, "key")
    )


def side_files(spark: SparkSession, params: Params) -> str:
    """The bounded table as a file, in a folder that is the session's own and goes with it; made once."""
    warehouse = Path(unquote(urlsplit(str(spark.conf.get("spark.sql.warehouse.dir"))).path))
    path = warehouse / f"nexmark-side-{params.side_rows}.parquet"
    if not path.exists():
        warehouse.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        pq.write_table(side_table(params), part)
        part.rename(path)
    return str(path)


def without_key(rows: pa.Table, params: Params) -> pa.Table:
    return rows.drop_columns(["key"])
