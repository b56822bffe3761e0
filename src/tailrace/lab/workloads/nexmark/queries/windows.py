"""Q5, Q7 and Q8: tumbling and sliding windows. Each window is said once, when the watermark has reached its end."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.lab.workloads.nexmark.params import Params
from tailrace.lab.workloads.nexmark.queries import window_functions as of_window
from tailrace.lab.workloads.nexmark.queries.views import auctions, bids, millis, on_time, persons

BID = ("auction", "bidder", "price", "dateTime", "extra")
BID_DDL = "auction bigint, bidder bigint, price bigint, dateTime timestamp, extra string"
_COUNT_DDL = "auction bigint, num bigint"


def flat(rows: pa.Table, params: Params) -> pa.Table:
    """With the window as two columns."""
    window = rows["window"]
    edges = {f"window_{edge}": pc.struct_field(window, edge) for edge in ("start", "end")}
    return pa.table({**{name: rows[name] for name in rows.column_names if name != "window"}, **edges})


def q5_spark(events: DataFrame, params: Params) -> DataFrame:
    """Counts, then all counts of a window in one list. Spark has no aggregate that keeps all rows with the maximum."""
    sliding = F.window("dateTime", millis(params.window_ms), millis(params.slide_ms))
    counts = on_time(bids(events), params).groupBy(sliding, "auction").agg(F.count("*").alias("num"))
    lists = counts.groupBy("window").agg(
        F.max("num").alias("best"), F.collect_list(F.struct("auction", "num")).alias("items")
    )
    return lists.select("window", F.inline(F.filter("items", lambda item: item["num"] == F.col("best"))))


def highest(rows: DataFrame) -> DataFrame:
    """From one list of bids a window to those bids with the highest price."""
    return rows.select("window", F.inline(F.filter("bids", lambda bid: bid["price"] == F.col("best"))))


def q7_spark(events: DataFrame, params: Params) -> DataFrame:
    tumbling = F.window("dateTime", millis(params.window_ms))
    kept = on_time(bids(events), params).groupBy(tumbling, F.col("bidder").alias("key"))
    return highest(kept.agg(F.max("price").alias("best"), F.collect_list(F.struct(*BID)).alias("bids")))


def q7_beam_spark(events: DataFrame, params: Params) -> DataFrame:
    kept = on_time(bids(events), params).groupBy(F.window("dateTime", millis(params.window_ms)))
    return highest(kept.agg(F.max("price").alias("best"), F.collect_list(F.struct(*BID)).alias("bids")))


def _bids(events: DataFrame, params: Params) -> Any:
    return tr.stream(bids(events)).withWatermark("dateTime", millis(params.watermark_delay_ms))


def _sliding(params: Params) -> Any:
    return tr.window("dateTime", millis(params.window_ms), millis(params.slide_ms))


def q5_tailrace(events: DataFrame, params: Params) -> Any:
    counts = _bids(events, params).groupBy(_sliding(params), "auction").agg(tr.count().alias("num"))
    return counts.groupBy("window").applyInWindow(of_window.most_bids, _COUNT_DDL)


def q5_append_tailrace(events: DataFrame, params: Params) -> Any:
    """Keeps the bids themselves, a row each, and counts them when a window ends."""
    counts = (
        _bids(events, params)
        .groupBy(_sliding(params), "auction")
        .applyInWindow(of_window.bids_of_each_auction, _COUNT_DDL, columns=["auction"], perKey=True)
    )
    return counts.groupBy("window").applyInWindow(of_window.most_bids, _COUNT_DDL)


def q7_tailrace(events: DataFrame, params: Params) -> Any:
    tumbling = tr.window("dateTime", millis(params.window_ms))
    kept = _bids(events, params).groupBy(tumbling, "bidder")
    return kept.applyInWindow(of_window.highest_of_each_bidder, BID_DDL, columns=BID, perKey=True)


def q7_beam_tailrace(events: DataFrame, params: Params) -> Any:
    """The highest of each bidder's highest: so that one server need not see every bid."""
    return q7_tailrace(events, params).groupBy("window").applyInWindow(of_window.highest, BID_DDL, columns=BID)


def q8_spark(events: DataFrame, params: Params) -> DataFrame:
    """A join on the window itself, so that Spark can forget both sides when it has ended. Rows are said at once."""
    tumbling = F.window("dateTime", millis(params.window_ms))
    joined = on_time(persons(events), params).select("id", "name", tumbling)
    opened = on_time(auctions(events), params).select("seller", "reserve", tumbling.alias("opened_in"))
    both = joined.join(opened, (F.col("id") == F.col("seller")) & (F.col("window") == F.col("opened_in")))
    return both.select("id", "name", "reserve", "window")
