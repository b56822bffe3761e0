"""Q13, Q18, Q19 and Q20 over events that come as texts of JSON, as the Keyed Prefetching paper ran them.

Keys lie outside the text, so that they are known before it is parsed: Tailrace parses in a step of ``transform``, and
hints may come from before it. Spark's versions parse first, and are the usual ones after that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.lab.workloads.nexmark.events.schema import (
    EVENT_SCHEMA,
    SCHEMAS,
    TEXT,
    TEXT_SCHEMA,
    Kind,
    spark_schema,
    wide_name,
)
from tailrace.lab.workloads.nexmark.params import Params
from tailrace.lab.workloads.nexmark.queries import joins, lookups, rolling
from tailrace.lab.workloads.nexmark.queries.registry import SPARK, TAILRACE
from tailrace.lab.workloads.nexmark.queries.version import Version

Step = Callable[[DataFrame], DataFrame]
_OUTSIDE = tuple(name for name in TEXT_SCHEMA.names if name != TEXT)
_KEYS = {"bid_auction": "auction", "bid_bidder": "bidder", "auction_id": "auction"}
"""Columns of wide rows that lie outside the texts, under other names."""


def wide(*kinds: Kind) -> Step:
    """Parses texts of these kinds: wide rows, and the columns that lie outside the texts as they are.

    The keys are left out: they are columns of their own.
    """
    own = {wide_name(kind, name) for kind in kinds for name in SCHEMAS[kind].names} - {*_OUTSIDE, *_KEYS}
    fields = [field for field in EVENT_SCHEMA if field.name in own]

    def parsed(rows: DataFrame) -> DataFrame:
        event = F.from_json(TEXT, spark_schema(fields)).alias(TEXT)
        return rows.withColumn(TEXT, event).select(*(name for name in rows.columns if name != TEXT), f"{TEXT}.*")

    return parsed


def _bids(rows: DataFrame) -> DataFrame:
    """Texts of bids become bids."""
    inside = [name for name in SCHEMAS[Kind.BID].names if name not in _OUTSIDE]
    others = [name for name in rows.columns if name not in (TEXT, "event_type")]
    return wide(Kind.BID)(rows).select(*others, *(F.col(wide_name(Kind.BID, name)).alias(name) for name in inside))


def _of_kinds(events: DataFrame, *kinds: Kind) -> DataFrame:
    return events.where(F.col("event_type").isin(*map(int, kinds)))


def q13_tailrace(events: DataFrame, params: Params) -> Any:
    texts = _of_kinds(events, Kind.BID).withColumn("key", lookups.key_of(params))
    return lookups.joined(tr.stream(texts).transform(_bids), events.sparkSession, params)


def q18_tailrace(events: DataFrame, params: Params) -> Any:
    return rolling.last_bids(tr.stream(_of_kinds(events, Kind.BID)).transform(_bids))


def q19_tailrace(events: DataFrame, params: Params) -> Any:
    return rolling.best_bids(tr.stream(_of_kinds(events, Kind.BID)).transform(_bids), params)


def q20_kept_tailrace(events: DataFrame, params: Params) -> Any:
    def met(rows: DataFrame) -> DataFrame:
        parsed = wide(Kind.AUCTION, Kind.BID)(rows)
        return joins.bids_and_auctions(parsed, F.col("auction"), F.col("bidder"), params)

    return joins.kept_auctions(tr.stream(_of_kinds(events, Kind.AUCTION, Kind.BID)).transform(met))


def _with_keys(rows: DataFrame) -> DataFrame:
    """The keys under the names that they have in wide rows."""
    is_bid = F.col("event_type") == int(Kind.BID)
    own = {name: F.when(is_bid if name != "auction_id" else ~is_bid, F.col(key)) for name, key in _KEYS.items()}
    return rows.withColumns(own)


def _parsed_first(version: Version, kinds: tuple[Kind, ...]) -> Version:
    def build(events: DataFrame, params: Params) -> Any:
        return version.build(_with_keys(wide(*kinds)(_of_kinds(events, *kinds))), params)

    return replace(version, build=build)


def _version(of: Mapping[str, Any], query: str) -> Version:
    found = of[query]
    assert isinstance(found, Version)
    return found


_BUILD: Mapping[str, tuple[Callable[[DataFrame, Params], Any], tuple[Kind, ...]]] = {
    "q13": (q13_tailrace, (Kind.BID,)),
    "q18": (q18_tailrace, (Kind.BID,)),
    "q19": (q19_tailrace, (Kind.BID,)),
    "q20-kept": (q20_kept_tailrace, (Kind.AUCTION, Kind.BID)),
}
TAILRACE_TEXTS = {query: replace(_version(TAILRACE, query), build=build) for query, (build, _) in _BUILD.items()}
SPARK_TEXTS = {query: _parsed_first(_version(SPARK, query), kinds) for query, (_, kinds) in _BUILD.items()}
