"""Q7-Session, Q11 and Q11-Median: a window for each bidder, as long as less than the gap lies between two bids.

Spark joins two rows to one session even when exactly the gap lies between them. Events have whole milliseconds, so a
gap that is a microsecond shorter gives the sessions that are asked for; the microsecond is given back to their ends.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as F

from tailrace.lab.nexmark.params import Params
from tailrace.lab.nexmark.queries.views import bids, on_time
from tailrace.lab.nexmark.queries.windows import BID, highest, window_columns


def _sessions(events: DataFrame, params: Params) -> GroupedData:
    session = F.session_window("dateTime", f"{params.gap_ms * 1000 - 1} microseconds").alias("window")
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
