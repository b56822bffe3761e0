"""Q12 and Q15 to Q19: one row of state for each key, kept for ever, said again whenever it changes.

Days are windows for Tailrace where it counts what is distinct: it counts exactly, from rows that it keeps, and keeps
rows in windows only. Without a watermark they stay open, as Spark's groups do.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.lab.workloads.nexmark.params import Params
from tailrace.lab.workloads.nexmark.queries.views import bids

FULL_BID = ("auction", "bidder", "price", "channel", "url", "dateTime", "extra")


def q12_spark(events: DataFrame, params: Params) -> DataFrame:
    return bids(events).groupBy("bidder").agg(F.count("*").alias("num"))


def q12_tailrace(events: DataFrame, params: Params) -> Any:
    return tr.stream(bids(events)).groupBy("bidder").agg(tr.count().alias("num"))


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


def _ranked(events: DataFrame, *columns: str) -> DataFrame:
    """Bids with a column for each of ``columns`` and rank: its value where the bid has the rank, else null."""
    named = {
        f"{rank}_{column}s": F.when(condition, F.col(column))
        for column in columns
        for rank, condition in _ranks().items()
    }
    return _by_day(events).withColumns(named)


def _ranked_counts(column: str) -> list[Any]:
    return [tr.count(f"{rank}_{column}s").alias(f"{rank}_bids") for rank in _ranks()]


def _ranked_figures() -> list[Any]:
    distinct = [f"{rank}_{column}s" for column in ("bidder", "auction") for rank in _ranks()]
    return [*_ranked_counts("bidder"), *(tr.count_distinct(name).alias(name) for name in distinct)]


def of_the_day(rows: DataFrame, params: Params) -> DataFrame:
    """Tailrace's rows with the window as the day's name."""
    return rows.withColumn("day", F.date_format("window.start", "yyyy-MM-dd")).drop("window")


def q15_tailrace(events: DataFrame, params: Params) -> Any:
    days = tr.stream(_ranked(events, "bidder", "auction")).groupBy(tr.window("dateTime", "1 day"))
    return days.agg(*_ranked_figures())


def q16_tailrace(events: DataFrame, params: Params) -> Any:
    ranked = _ranked(events, "bidder", "auction").withColumn("minute", F.date_format("dateTime", "HH:mm"))
    days = tr.stream(ranked).groupBy(tr.window("dateTime", "1 day"), "channel")
    return days.agg(tr.max("minute").alias("minute"), *_ranked_figures())


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


def q17_tailrace(events: DataFrame, params: Params) -> Any:
    return (
        tr.stream(_ranked(events, "bidder"))
        .groupBy("auction", "day")
        .agg(
            *_ranked_counts("bidder"),
            tr.min("price").alias("min_price"),
            tr.max("price").alias("max_price"),
            tr.sum("price").alias("sum_price"),
        )
    )


def with_mean(rows: DataFrame, params: Params) -> DataFrame:
    """Q17's mean of whole cents, cut; prices are not negative."""
    return rows.withColumn("avg_price", F.expr("sum_price div total_bids"))


def q18_spark(events: DataFrame, params: Params) -> DataFrame:
    last = F.max_by(F.struct(*FULL_BID), F.struct("dateTime", "number")).alias("last")
    keyed = bids(events).groupBy(F.col("bidder").alias("key_bidder"), F.col("auction").alias("key_auction"))
    return keyed.agg(last).select("last.*")


def q18_tailrace(events: DataFrame, params: Params) -> Any:
    return last_bids(tr.stream(bids(events)))


def last_bids(bids: Any) -> Any:
    """The last row is the best one by time and number: of equal times the later counts."""
    columns = [name for name in FULL_BID if name not in ("bidder", "auction")]
    return bids.groupBy("bidder", "auction").topN(1, ["dateTime", "number"], columns=columns)


def without_rank(rows: pa.Table, params: Params) -> pa.Table:
    return rows.drop_columns(["rank"])


def q19_spark(events: DataFrame, params: Params) -> DataFrame:
    order = F.struct(F.col("price"), (-F.col("number")).alias("earlier"))
    best = F.max_by(F.struct(*FULL_BID), order, params.top).alias("best")
    lists = bids(events).groupBy(F.col("auction").alias("key")).agg(best)
    return lists.select(F.posexplode("best")).select("col.*", (F.col("pos") + 1).cast("bigint").alias("rank_number"))


def q19_tailrace(events: DataFrame, params: Params) -> Any:
    return best_bids(tr.stream(bids(events)), params)


def best_bids(bids: Any, params: Params) -> Any:
    """Of equal bids the earlier is better, by its number."""
    columns, order = [name for name in FULL_BID if name != "auction"], ["price", "number"]
    return bids.groupBy("auction").topN(params.top, order, ascending=[False, True], columns=columns, rank="rank_number")


def with_long_rank(rows: pa.Table, params: Params) -> pa.Table:
    place = rows.schema.get_field_index("rank_number")
    return rows.set_column(place, "rank_number", rows["rank_number"].cast(pa.int64()))
