"""The three kinds of rows in a stream of wide events, under their own names."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tailrace.lab.workloads.nexmark.events.schema import SCHEMAS, Kind, wide_name
from tailrace.lab.workloads.nexmark.params import Params


def of_kind(events: DataFrame, kind: Kind) -> DataFrame:
    """The rows of one kind: its own columns, and ``number``. Columns that a query does not name are never read."""
    columns = [F.col(wide_name(kind, name)).alias(name) for name in SCHEMAS[kind].names]
    return events.where(F.col("event_type") == int(kind)).select("number", *columns)


def persons(events: DataFrame) -> DataFrame:
    return of_kind(events, Kind.PERSON)


def auctions(events: DataFrame) -> DataFrame:
    return of_kind(events, Kind.AUCTION)


def bids(events: DataFrame) -> DataFrame:
    return of_kind(events, Kind.BID)


def millis(value: int) -> str:
    """A duration as Spark reads it."""
    return f"{value} milliseconds"


def on_time(rows: DataFrame, params: Params) -> DataFrame:
    """With the watermark that windows close by."""
    return rows.withWatermark("dateTime", millis(params.watermark_delay_ms))
