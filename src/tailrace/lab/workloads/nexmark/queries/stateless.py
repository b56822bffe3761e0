"""Q0, Q1, Q2, Q14, Q21 and Q22, the same for every engine; and Q13, whose state is a table that never changes."""

from __future__ import annotations

from decimal import Decimal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tailrace.lab.workloads.nexmark.params import Params, side_table
from tailrace.lab.workloads.nexmark.queries.views import bids


def _euro() -> Column:
    return (F.col("price").cast("decimal(19, 0)") * F.lit(Decimal("0.908"))).cast("decimal(23, 3)")


def q0(events: DataFrame, params: Params) -> DataFrame:
    return bids(events).select("auction", "bidder", "price", "dateTime", "extra")


def q1(events: DataFrame, params: Params) -> DataFrame:
    return bids(events).select("auction", "bidder", _euro().alias("price"), "dateTime", "extra")


def q2(events: DataFrame, params: Params) -> DataFrame:
    return bids(events).where(F.col("auction") % params.auction_skip == 0).select("auction", "price")


def q13_spark(events: DataFrame, params: Params) -> DataFrame:
    side = events.sparkSession.createDataFrame(side_table(params))
    keyed = bids(events).withColumn("key", F.col("auction") % params.side_rows)
    return keyed.join(F.broadcast(side), "key").select("auction", "bidder", "price", "dateTime", "value")


def q14(events: DataFrame, params: Params) -> DataFrame:
    hour = F.hour("dateTime")
    part = F.when(hour.between(8, 18), "dayTime").when((hour <= 6) | (hour >= 20), "nightTime").otherwise("otherTime")
    count = F.length("extra") - F.length(F.replace("extra", F.lit("c"), F.lit("")))
    return (
        bids(events)
        .withColumn("euro", _euro())
        .where((F.col("euro") > 1_000_000) & (F.col("euro") < 50_000_000))
        .select(
            "auction",
            "bidder",
            F.col("euro").alias("price"),
            part.alias("bidTimeType"),
            "dateTime",
            "extra",
            count.alias("c_counts"),
        )
    )


def q21(events: DataFrame, params: Params) -> DataFrame:
    channel, in_url = F.lower("channel"), F.regexp_extract("url", "channel_id=([^&]*)", 1)
    found = (
        F.when(channel == "apple", "0")
        .when(channel == "google", "1")
        .when(channel == "facebook", "2")
        .when(channel == "baidu", "3")
        .when(in_url != "", in_url)
    )
    named = bids(events).select("auction", "bidder", "price", "channel", found.alias("channel_id"))
    return named.where(F.col("channel_id").isNotNull())


def q22(events: DataFrame, params: Params) -> DataFrame:
    parts = [F.split_part("url", F.lit("/"), F.lit(place)).alias(f"dir{place - 3}") for place in (4, 5, 6)]
    return bids(events).select("auction", "bidder", "price", "channel", *parts)
