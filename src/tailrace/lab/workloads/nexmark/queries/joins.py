"""Q3, Q4, Q8, Q9 and Q20: bids meet auctions, auctions meet people.

Q3 and Q20 have no window: an engine keeps every row for ever. Q4 and Q9 end with the auction. Spark can say a winner
only once: so it says it when the auction has closed, by making ``expires`` the event time of auctions. So does Tailrace
with Beam's rules, where a session of no length at ``expires`` brings an auction's bids together; with Flink's rules it
says every leader, as Flink does.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.lab.workloads.nexmark.events.schema import AUCTION_SCHEMA, Kind, wide_name
from tailrace.lab.workloads.nexmark.params import Params
from tailrace.lab.workloads.nexmark.queries import join_functions as of_joined
from tailrace.lab.workloads.nexmark.queries.views import auctions, bids, millis, on_time, persons
from tailrace.lab.workloads.nexmark.queries.windows import flat

_AUCTION = tuple(AUCTION_SCHEMA.names)
_STATES = ("OR", "ID", "CA")


def q3_spark(events: DataFrame, params: Params) -> DataFrame:
    sold = auctions(events).where(F.col("category") == params.category).select("id", "seller")
    people = persons(events).where(F.col("state").isin(*_STATES))
    people = people.select(F.col("id").alias("person"), "name", "city", "state")
    return sold.join(people, F.col("seller") == F.col("person")).select("name", "city", "state", "id")


def _q20_sides(events: DataFrame, params: Params) -> tuple[DataFrame, DataFrame]:
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
    return offered, sold


def q20_spark(events: DataFrame, params: Params) -> DataFrame:
    offered, sold = _q20_sides(events, params)
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


# Tailrace ------------------------------------------------------------------------------------------------------------


def _timed(rows: DataFrame, time: str, params: Params) -> Any:
    return tr.stream(rows).withWatermark(time, millis(params.watermark_delay_ms))


def q3_tailrace(events: DataFrame, params: Params) -> Any:
    sold = auctions(events).where(F.col("category") == params.category).select("id", "seller")
    people = persons(events).where(F.col("state").isin(*_STATES))
    people = people.select(F.col("id").alias("seller"), "name", "city", "state")
    return tr.stream(sold).join(tr.stream(people), "seller")


def without_seller(rows: pa.Table, params: Params) -> pa.Table:
    return rows.drop_columns(["seller"])


def q8_tailrace(events: DataFrame, params: Params) -> Any:
    joined = persons(events).select("id", "name", "dateTime")
    opened = auctions(events).select(F.col("seller").alias("id"), "reserve", F.col("dateTime").alias("opened"))
    window = tr.window("dateTime", millis(params.window_ms))
    return _timed(joined, "dateTime", params).join(_timed(opened, "opened", params), "id", window=window)


def without_times(rows: pa.Table, params: Params) -> pa.Table:
    return flat(rows, params).drop_columns(["dateTime", "opened"])


def q20_tailrace(events: DataFrame, params: Params) -> Any:
    offered, sold = _q20_sides(events, params)
    return tr.stream(offered).join(tr.stream(sold.withColumnRenamed("id", "auction")), "auction")


_OF_BID = {"bidder": "bigint", "price": "bigint", "channel": "string", "url": "string"}
_OF_AUCTION = {
    "itemName": "string",
    "description": "string",
    "initialBid": "bigint",
    "reserve": "bigint",
    "auction_dateTime": "timestamp",
    "expires": "timestamp",
    "seller": "bigint",
    "category": "bigint",
    "auction_extra": "string",
}


def q20_kept_tailrace(events: DataFrame, params: Params) -> Any:
    """A bid is joined with what is kept of its auction. Bids and auctions come as one stream, in one scan."""
    auction = F.coalesce("bid_auction", "auction_id").alias("auction")
    bidder = F.col("bid_bidder").alias("bidder")
    return kept_auctions(tr.stream(bids_and_auctions(events, auction, bidder, params)))


def bids_and_auctions(events: DataFrame, auction: Column, bidder: Column, params: Params) -> DataFrame:
    """Of wide rows, bids and auctions of the category. ``auction``, ``bidder``: the columns of these names."""
    is_bid = F.col("event_type") == int(Kind.BID)
    is_auction = (F.col("event_type") == int(Kind.AUCTION)) & (F.col("auction_category") == params.category)
    return events.where(is_bid | is_auction).select(
        auction,
        bidder,
        *(F.col(f"bid_{name}").alias(name) for name in _OF_BID if name != "bidder"),
        F.when(is_bid, F.col("dateTime")).alias("bid_dateTime"),
        "bid_extra",
        *(F.col(wide_name(Kind.AUCTION, name)).alias(name) for name in _OF_AUCTION if name in AUCTION_SCHEMA.names),
        F.when(~is_bid, F.col("dateTime")).alias("auction_dateTime"),
        "auction_extra",
    )


def kept_auctions(rows: Any) -> Any:
    kept = ", ".join(f"{name} {kind}" for name, kind in _OF_AUCTION.items())
    offered = ", ".join(f"{name} {kind}" for name, kind in _OF_BID.items())
    said = f"auction bigint, {offered}, bid_dateTime timestamp, bid_extra string, {kept}"
    return rows.groupBy("auction").process(of_joined.with_auctions, said, state=kept)


def _valid_auctions(events: DataFrame) -> DataFrame:
    """A bid counts from the auction's begin to its end, which belongs to it: times are whole milliseconds."""
    return auctions(events).drop("number").withColumn("until", F.col("expires") + F.expr("INTERVAL 1 MILLISECOND"))


def _bids_of(events: DataFrame) -> DataFrame:
    return bids(events).select(
        F.col("auction").alias("id"),
        "bidder",
        "price",
        F.col("dateTime").alias("bid_dateTime"),
        F.col("extra").alias("bid_extra"),
        "number",
    )


def q9_tailrace(events: DataFrame, params: Params) -> Any:
    sold = _timed(_valid_auctions(events), "dateTime", params)
    offered = _timed(_bids_of(events), "bid_dateTime", params)
    best = ["price", "bid_dateTime", "number"]
    return sold.join(offered, "id", validTo="until").groupBy("id").topN(1, best, [False, True, True])


def winners(rows: pa.Table, params: Params) -> pa.Table:
    return rows.drop_columns(["until", "number", "rank"]).append_column("auction", rows["id"])


def q4_tailrace(events: DataFrame, params: Params) -> Any:
    """What each new leader adds to its category, summed up: the sink divides."""
    sold = _timed(_valid_auctions(events).select("id", "category", "dateTime", "until"), "dateTime", params)
    offered = _timed(_bids_of(events).select("id", "price", "bid_dateTime"), "bid_dateTime", params)
    gains = (
        sold.join(offered, "id", validTo="until")
        .groupBy("id")
        .process(
            of_joined.gains,
            "category bigint, gain bigint, auctions bigint",
            state="best bigint",
            columns=["category", "price"],
        )
    )
    return gains.groupBy("category").agg(tr.sum("gain").alias("total"), tr.sum("auctions").alias("auctions"))


def divided(rows: DataFrame, params: Params) -> DataFrame:
    return rows.select("category", F.expr("total div auctions").alias("price"))


_WINNER_DDL = (
    "id bigint, itemName string, description string, initialBid bigint, reserve bigint, dateTime timestamp, "
    "expires timestamp, seller bigint, category bigint, extra string, bidder bigint, price bigint, "
    "bid_dateTime timestamp, bid_extra string"
)
_CLOSED = "window"


def _closed_auctions(params: Params, sold: DataFrame, offered: DataFrame) -> Any:
    """Every bid with its auction, grouped by auction, complete when the auction has closed."""
    before_its_end = (millis(-params.auction_life_ms), millis(-1))
    met = _timed(sold, "expires", params).join(
        _timed(offered, "bid_dateTime", params), "id", within=before_its_end, eventTime="closed"
    )
    return met.groupBy(tr.session_window("closed", "1 microsecond").alias(_CLOSED), "id")


def q9_beam_tailrace(events: DataFrame, params: Params) -> Any:
    grouped = _closed_auctions(params, auctions(events).drop("number"), _bids_of(events))
    return grouped.applyInWindow(of_joined.winners, _WINNER_DDL)


def beam_winners(rows: pa.Table, params: Params) -> pa.Table:
    return rows.drop_columns([_CLOSED]).append_column("auction", rows["id"])


def q4_beam_tailrace(events: DataFrame, params: Params) -> Any:
    """Windows are shifted by a millisecond, as in ``q4_beam_spark``."""
    sold = auctions(events).select("id", "category", "reserve", "expires")
    offered = _bids_of(events).select("id", "price", "bid_dateTime", "number")
    prices = _closed_auctions(params, sold, offered).applyInWindow(
        of_joined.closing_prices, "category bigint, price bigint"
    )
    closed_in = tr.window(_CLOSED, millis(params.window_ms), millis(params.slide_ms), millis(1)).alias("window")
    return prices.groupBy(closed_in, "category").agg(tr.sum("price").alias("total"), tr.count().alias("auctions"))


def shifted_back(rows: DataFrame, params: Params) -> DataFrame:
    """The rounded mean, and windows without the shift."""
    back = F.expr("INTERVAL 1 MILLISECOND")
    return rows.select(
        "category",
        F.expr("(2 * total + auctions) div (2 * auctions)").alias("price"),
        (F.col("window.start") - back).alias("window_start"),
        (F.col("window.end") - back).alias("window_end"),
    )
