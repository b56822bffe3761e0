"""Q3, Q4, Q9 and Q20: bids meet auctions, auctions meet people.

Q3 and Q20 have no window: an engine keeps every row for ever. Q4 and Q9 end with the auction. Spark can say a winner
only once: so it says it when the auction has closed, by making ``expires`` the event time of auctions.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tailrace.lab.nexmark.params import Params
from tailrace.lab.nexmark.queries.views import auctions, bids, millis, on_time, persons
from tailrace.lab.nexmark.schema import AUCTION_SCHEMA

_AUCTION = tuple(AUCTION_SCHEMA.names)
_STATES = ("OR", "ID", "CA")


def q3_spark(events: DataFrame, params: Params) -> DataFrame:
    sold = auctions(events).where(F.col("category") == params.category).select("id", "seller")
    people = persons(events).where(F.col("state").isin(*_STATES))
    people = people.select(F.col("id").alias("person"), "name", "city", "state")
    return sold.join(people, F.col("seller") == F.col("person")).select("name", "city", "state", "id")


def q20_spark(events: DataFrame, params: Params) -> DataFrame:
    offered = bids(events).select(
        "auction",
        "bidder",
        "price",
        "channel",
        "url",
        F.col("dateTime").alias("bid_dateTime"),
        F.col("extra").alias("bid_extra"),
    )
    sold = (
        auctions(events)
        .where(F.col("category") == params.category)
        .select(
            "id",
            "itemName",
            "description",
            "initialBid",
            "reserve",
            F.col("dateTime").alias("auction_dateTime"),
            "expires",
            "seller",
            "category",
            F.col("extra").alias("auction_extra"),
        )
    )
    return offered.join(sold, F.col("auction") == F.col("id")).drop("id")


def _winners(events: DataFrame, params: Params, counts: Column) -> DataFrame:
    """One row (``id``, ``expires``, ``won``) for each auction that closed with a bid that counts.

    Of bids, ``price``, ``bid_dateTime`` and the like may be asked in ``counts``; of auctions, all columns.
    """
    sold = auctions(events).drop("number").withWatermark("expires", millis(params.watermark_delay_ms))
    offered = on_time(bids(events), params).select(
        "auction",
        "bidder",
        "price",
        F.col("dateTime").alias("bid_dateTime"),
        F.col("extra").alias("bid_extra"),
        "number",
    )
    # The second bound lets Spark forget bids: no auction lives longer.
    alive = F.col("bid_dateTime") >= F.col("expires") - F.expr(f"INTERVAL '{params.auction_life_ms}' MILLISECOND")
    met = sold.join(offered, (F.col("id") == F.col("auction")) & counts & alive)
    row = F.struct(*_AUCTION, "auction", "bidder", "price", "bid_dateTime", "bid_extra")
    earlier = F.struct("price", (-F.unix_millis("bid_dateTime")).alias("sooner"), (-F.col("number")).alias("first"))
    return met.groupBy("id", "expires").agg(F.max_by(row, earlier).alias("won"))


def _beam_counts() -> Column:
    return (F.col("bid_dateTime") < F.col("expires")) & (F.col("price") >= F.col("reserve"))


def q9_spark(events: DataFrame, params: Params) -> DataFrame:
    counts = F.col("bid_dateTime").between(F.col("dateTime"), F.col("expires"))
    return _winners(events, params, counts).select("won.*")


def q9_beam_spark(events: DataFrame, params: Params) -> DataFrame:
    return _winners(events, params, _beam_counts()).select("won.*")


def q4_beam_spark(events: DataFrame, params: Params) -> DataFrame:
    """Auctions close a millisecond before they expire; windows are shifted instead, to keep the event time column."""
    shift = millis(1)
    closed_in = F.window("expires", millis(params.window_ms), millis(params.slide_ms), shift)
    means = (
        _winners(events, params, _beam_counts())
        .groupBy(closed_in, F.col("won.category").alias("category"))
        .agg(F.expr("(2 * sum(won.price) + count(1)) div (2 * count(1))").alias("price"))
    )
    back = F.expr("INTERVAL 1 MILLISECOND")
    start, end = F.col("window.start") - back, F.col("window.end") - back
    return means.select("category", "price", start.alias("window_start"), end.alias("window_end"))
