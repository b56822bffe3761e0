"""Q7-Session, Q11 and Q11-Median: a window for each bidder, as long as less than the gap lies between two bids.

Spark, and Tailrace as Spark does, joins two rows to one session even when exactly the gap lies between them. Events
have whole milliseconds, so a gap that is a microsecond shorter gives the sessions that are asked for; who compares
answers gives the microsecond back to their ends.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, GroupedData
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.lab.workloads.nexmark.params import Params
from tailrace.lab.workloads.nexmark.queries import window_functions as of_window
from tailrace.lab.workloads.nexmark.queries.views import bids, millis, on_time
from tailrace.lab.workloads.nexmark.queries.windows import BID, BID_DDL, flat, highest

_MICRO = pa.scalar(1, pa.duration("us"))


def _gap(params: Params) -> str:
    return f"{params.gap_ms * 1000 - 1} microseconds"


def _sessions(events: DataFrame, params: Params) -> GroupedData:
    session = F.session_window("dateTime", _gap(params)).alias("window")
    return on_time(bids(events), params).groupBy(session, F.col("bidder").alias("key"))


def q7_session_spark(events: DataFrame, params: Params) -> DataFrame:
    kept = _sessions(events, params)
    return highest(kept.agg(F.max("price").alias("best"), F.collect_list(F.struct(*BID)).alias("bids")))


def q11_spark(events: DataFrame, params: Params) -> DataFrame:
    counts = _sessions(events, params).agg(F.count("*").alias("num"))
    return counts.select("window", F.col("key").alias("bidder"), "num")


def q11_median_spark(events: DataFrame, params: Params) -> DataFrame:
    medians = _sessions(events, params).agg(F.median("price").alias("price"))
    return medians.select("window", F.col("key").alias("bidder"), "price")


def _tailrace_sessions(rows: DataFrame, params: Params) -> Any:
    stream = tr.stream(rows).withWatermark("dateTime", millis(params.watermark_delay_ms))
    return stream.groupBy(tr.session_window("dateTime", _gap(params)).alias("window"), "bidder")


def ends_given_back(rows: pa.Table, params: Params) -> pa.Table:
    """With the session as two columns, and the microsecond given back."""
    rows = flat(rows, params)
    place = rows.column_names.index("window_end")
    end = rows["window_end"].cast(pa.timestamp("us", tz="UTC"))
    return rows.set_column(place, "window_end", pc.add(end, _MICRO))


def q11_tailrace(events: DataFrame, params: Params) -> Any:
    return _tailrace_sessions(bids(events), params).agg(tr.count().alias("num"))


def q11_median_tailrace(events: DataFrame, params: Params) -> Any:
    return _tailrace_sessions(bids(events), params).agg(tr.median("price").alias("price"))


def q7_session_tailrace(events: DataFrame, params: Params) -> Any:
    return _tailrace_sessions(bids(events), params).applyInWindow(
        of_window.highest_of_each_session, BID_DDL, columns=BID
    )
