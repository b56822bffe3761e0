"""Q7-Session, Q11 and Q11-Median: a window for each bidder, as long as less than the gap lies between two bids.

Spark, and Tailrace as Spark does, joins two rows to one session even when exactly the gap lies between them. Events
have whole milliseconds, so a gap that is a microsecond shorter gives the sessions that are asked for; the microsecond
is given back to their ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.lab.nexmark.params import Params
from tailrace.lab.nexmark.queries.packing import packed, unpacked
from tailrace.lab.nexmark.queries.views import bids, millis, on_time
from tailrace.lab.nexmark.queries.window_functions import highest_of_each
from tailrace.lab.nexmark.queries.windows import BID, flat, highest, window_columns
from tailrace.lab.nexmark.schema import BID_SCHEMA

_PACKED = pa.schema([BID_SCHEMA.field(name) for name in ("price", "auction", "dateTime", "extra")])
_MICRO = pa.scalar(1, pa.duration("us"))


def _gap(params: Params) -> str:
    return f"{params.gap_ms * 1000 - 1} microseconds"


def _sessions(events: DataFrame, params: Params) -> GroupedData:
    session = F.session_window("dateTime", _gap(params)).alias("window")
    return on_time(bids(events), params).groupBy(session, F.col("bidder").alias("key"))


def _ends() -> tuple[Column, Column]:
    start, end = window_columns()
    return start, (end + F.expr("INTERVAL '0.000001' SECOND")).alias("window_end")


def q7_session_spark(events: DataFrame, params: Params) -> DataFrame:
    kept = _sessions(events, params)
    return highest(kept.agg(F.max("price").alias("best"), F.collect_list(F.struct(*BID)).alias("bids")), *_ends())


def q11_spark(events: DataFrame, params: Params) -> DataFrame:
    counts = _sessions(events, params).agg(F.count("*").alias("num"))
    return counts.select(F.col("key").alias("bidder"), "num", *_ends())


def q11_median_spark(events: DataFrame, params: Params) -> DataFrame:
    medians = _sessions(events, params).agg(F.median("price").alias("price"))
    return medians.select(F.col("key").alias("bidder"), "price", *_ends())


def _tailrace_sessions(rows: DataFrame, params: Params) -> Any:
    stream = tr.stream(rows).withWatermark("dateTime", millis(params.watermark_delay_ms))
    return stream.groupBy(tr.session_window("dateTime", _gap(params)).alias("window"), "bidder")


def ends_given_back(rows: pa.Table, params: Params) -> pa.Table:
    """Tailrace's rows with the session as two columns, and the microsecond given back."""
    rows = flat(rows, params)
    place = rows.column_names.index("window_end")
    end = rows["window_end"].cast(pa.timestamp("us", tz="UTC"))
    return rows.set_column(place, "window_end", pc.add(end, _MICRO))


def q11_tailrace(events: DataFrame, params: Params) -> Any:
    return _tailrace_sessions(bids(events), params).agg(tr.count().alias("num"))


def q11_median_tailrace(events: DataFrame, params: Params) -> Any:
    return _tailrace_sessions(bids(events), params).agg(tr.median("price").alias("price"))


def q7_session_tailrace(events: DataFrame, params: Params) -> Any:
    """Says all bids of a session, packed: which of them are the highest is left to the sink."""
    times = bids(events).withColumn("millis", F.unix_millis("dateTime"))
    rows = times.withColumn("bid", packed("price", "auction", "millis", "extra"))
    return _tailrace_sessions(rows, params).agg(tr.collect_list("bid").alias("bids"))


def highest_unpacked(rows: pa.Table, params: Params) -> pa.Table:
    rows = ends_given_back(rows, params)
    session = np.repeat(np.arange(rows.num_rows), pc.list_value_length(rows["bids"]).to_numpy())
    columns = unpacked(pc.list_flatten(rows["bids"]), _PACKED)
    columns |= {name: rows[name].take(pa.array(session)) for name in rows.column_names if name != "bids"}
    return pa.table(columns).filter(highest_of_each(session, columns["price"].to_numpy()))
