"""The workload ``bids-window``: bids and highest price of each auction in sliding windows; the demo's query.

In append mode: a window's rows are output once, when the watermark passes its end. The oracle needs no engine: it
counts each auction's bids in spans as long as the slide and adds up the spans of each window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.lab.registry import OURS, Batch, Files, Parameter, Settings, Value, Workload, register
from tailrace.lab.workloads.events import BID_SCHEMA, Bids

NAME = "bids-window"
FEED = "bids"
WINDOW_S, SLIDE_S, DELAY_S = 10, 2, 10
WINDOW, SLIDE, DELAY = f"{WINDOW_S} seconds", f"{SLIDE_S} seconds", f"{DELAY_S} seconds"

_MICROS = 1_000_000
_LATE_BY = 1_800 * _MICROS  # halfway between the rows that are in time and the hopeless ones


def tailrace_query(bids: DataFrame) -> Any:
    return (
        tr.stream(bids)
        .withWatermark("ts", DELAY)
        .groupBy(tr.window("ts", WINDOW, SLIDE), "auction")
        .agg(tr.count().alias("bids"), tr.max("price").alias("top"))
    )


def spark_query(bids: DataFrame) -> Any:
    return (
        bids.withWatermark("ts", DELAY)
        .groupBy(F.window("ts", WINDOW, SLIDE), "auction")
        .agg(F.count("*").alias("bids"), F.max("price").alias("top"))
    )


def make_bids(rows: int, auctions: int, seed: int) -> Bids:
    """Two seconds of bids a batch: every batch closes one window. Out of order by less than the allowed lateness."""
    return Bids(rows, auctions, SLIDE_S, jitter_s=4, late_share=0.0005, seed=seed)


def flat(output: pa.Table) -> pa.Table:
    """Output rows with the window as two columns, times in microseconds since 1970."""
    window = output["window"]
    columns = {
        edge: pc.struct_field(window, edge).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        for edge in ("start", "end")
    }
    return pa.table({**columns, **{name: output[name].cast(pa.int64()) for name in ("auction", "bids", "top")}})


def _spark(feeds: Mapping[str, DataFrame], values: Mapping[str, Value]) -> Any:
    return spark_query(feeds[FEED]).writeStream.outputMode("append")


def _tailrace(feeds: Mapping[str, DataFrame], values: Mapping[str, Value]) -> Any:
    return tailrace_query(feeds[FEED]).writeStream.outputMode("append")


def _inputs(settings: Settings) -> Iterator[Batch]:
    bids = make_bids(settings.rows, int(settings.values["auctions"]), settings.seed)
    for number, begin in enumerate(range(0, settings.events, settings.rows)):
        yield {FEED: bids.batch(number).slice(0, settings.events - begin)}


def _oracle(files: Files, settings: Settings) -> pa.Table:
    spans, newest = [], 0
    for path in files[FEED]:
        table = pq.read_table(path, columns=["ts", "auction", "price"])
        at = table["ts"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy()
        newest = max(newest, int(at.max()))
        spans.append(
            _sums(table.append_column("span", pa.array(at // (SLIDE_S * _MICROS))).filter(at >= newest - _LATE_BY))
        )
    parts = _again(pa.concat_tables(spans), ["span", "auction"])
    windows = []
    for back in range(WINDOW_S // SLIDE_S):
        start = (parts["span"].to_numpy() - back) * (SLIDE_S * _MICROS)
        windows.append(parts.drop_columns(["span"]).append_column("start", pa.array(start)))
    sums = _again(pa.concat_tables(windows), ["start", "auction"])
    end = sums["start"].to_numpy() + WINDOW_S * _MICROS
    sums = sums.append_column("end", pa.array(end)).filter(end <= newest - DELAY_S * _MICROS)
    return sums.select(["start", "end", "auction", "bids", "top"])


def _sums(rows: pa.Table) -> pa.Table:
    sums = rows.group_by(["span", "auction"]).aggregate([("price", "count"), ("price", "max")])
    return sums.rename_columns({"price_count": "bids", "price_max": "top"}).select(["span", "auction", "bids", "top"])


def _again(sums: pa.Table, by: list[str]) -> pa.Table:
    merged = sums.group_by(by).aggregate([("bids", "sum"), ("top", "max")])
    return merged.rename_columns({"bids_sum": "bids", "top_max": "top"})


register(
    Workload(
        name=NAME,
        description=f"bids and highest price of each auction in every {WINDOW}, moving by {SLIDE}",
        feeds={FEED: BID_SCHEMA},
        inputs=_inputs,
        queries={OURS: _tailrace, "spark-rocksdb": _spark, "spark-memory": _spark},
        oracle=_oracle,
        final=flat,
        parameters={"auctions": Parameter(20_000, "different auctions, a few of them popular")},
        rows=150_000,
    )
)
