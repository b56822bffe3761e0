"""Q12 and Q15 to Q19: one row of state for each key, kept for ever, said again whenever it changes."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tailrace.lab.nexmark.params import Params
from tailrace.lab.nexmark.queries.views import bids

FULL_BID = ("auction", "bidder", "price", "channel", "url", "dateTime", "extra")


def q12_spark(events: DataFrame, params: Params) -> DataFrame:
    return bids(events).groupBy("bidder").agg(F.count("*").alias("num"))


def _ranks() -> dict[str, Column]:
    price = F.col("price")
    return {
        "total": F.lit(True),
        "rank1": price < 10_000,
        "rank2": (price >= 10_000) & (price < 1_000_000),
        "rank3": price >= 1_000_000,
    }


def _bid_counts() -> list[Column]:
    return [F.count(F.when(condition, 1)).alias(f"{rank}_bids") for rank, condition in _ranks().items()]


def _figures() -> list[Column]:
    """Spark counts nothing distinct in a stream, so it keeps the sets."""
    distinct = [
        F.size(F.collect_set(F.when(condition, F.col(column)))).cast("bigint").alias(f"{rank}_{column}s")
        for column in ("bidder", "auction")
        for rank, condition in _ranks().items()
    ]
    return [*_bid_counts(), *distinct]


def _by_day(events: DataFrame) -> DataFrame:
    return bids(events).withColumn("day", F.date_format("dateTime", "yyyy-MM-dd"))


def q15_spark(events: DataFrame, params: Params) -> DataFrame:
    return _by_day(events).groupBy("day").agg(*_figures())


def q16_spark(events: DataFrame, params: Params) -> DataFrame:
    minute = F.max(F.date_format("dateTime", "HH:mm")).alias("minute")
    return _by_day(events).groupBy("channel", "day").agg(minute, *_figures())


def q17_spark(events: DataFrame, params: Params) -> DataFrame:
    return (
        _by_day(events)
        .groupBy("auction", "day")
        .agg(
            *_bid_counts(),
            F.min("price").alias("min_price"),
            F.max("price").alias("max_price"),
            F.expr("sum(price) div count(1)").alias("avg_price"),
            F.sum("price").alias("sum_price"),
        )
    )


def q18_spark(events: DataFrame, params: Params) -> DataFrame:
    last = F.max_by(F.struct(*FULL_BID), F.struct("dateTime", "number")).alias("last")
    keyed = bids(events).groupBy(F.col("bidder").alias("key_bidder"), F.col("auction").alias("key_auction"))
    return keyed.agg(last).select("last.*")


def q19_spark(events: DataFrame, params: Params) -> DataFrame:
    order = F.struct(F.col("price"), (-F.col("number")).alias("earlier"))
    best = F.max_by(F.struct(*FULL_BID), order, params.top).alias("best")
    lists = bids(events).groupBy(F.col("auction").alias("key")).agg(best)
    return lists.select(F.posexplode("best")).select("col.*", (F.col("pos") + 1).cast("bigint").alias("rank_number"))
