"""The workload ``keyed-sums``: sum, count and max of ``value`` per ``key``. The benches measure it.

In update mode: every changed row goes to the sink. The two floors keep no state and hand over what they can. No engine
may skip making its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.lab.registry import OURS, Batch, Files, Parameter, Settings, Value, Workload, register
from tailrace.lab.workloads.events import KEYED_SCHEMA, KeyedEvents, keyed_answer

NAME = "keyed-sums"
FEED = "events"

_Feeds = Mapping[str, DataFrame]
_Values = Mapping[str, Value]


def _spark(feeds: _Feeds, values: _Values) -> Any:
    totals = (
        feeds[FEED]
        .groupBy("key")
        .agg(F.sum("value").alias("total"), F.count("value").alias("n"), F.max("value").alias("top"))
    )
    return totals.writeStream.outputMode("update")


def _tailrace(feeds: _Feeds, values: _Values) -> Any:
    totals = (
        tr.stream(feeds[FEED])
        .groupBy("key")
        .agg(tr.sum("value").alias("total"), tr.count("value").alias("n"), tr.max("value").alias("top"))
    )
    return totals.writeStream.outputMode("update")


def _pass_through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _count_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"n": pa.array([sum(batch.num_rows for batch in batches)], pa.int64())})


def _shuffle_floor(feeds: _Feeds, values: _Values) -> Any:
    return feeds[FEED].repartition("key").mapInArrow(_pass_through, KEYED_SCHEMA).writeStream.outputMode("append")


def _transfer_floor(feeds: _Feeds, values: _Values) -> Any:
    return feeds[FEED].mapInArrow(_count_rows, "n bigint").writeStream.outputMode("append")


def _inputs(settings: Settings) -> Iterator[Batch]:
    events = KeyedEvents(int(settings.values["keys"]), settings.rows, settings.seed)
    for number, begin in enumerate(range(0, settings.events, settings.rows)):
        yield {FEED: events.batch(number).slice(0, settings.events - begin)}


def _oracle(files: Files, settings: Settings) -> pa.Table:
    return keyed_answer(files[FEED])


def _final(rows: pa.Table) -> pa.Table:
    """The last word on each key."""
    rows = rows.sort_by([("epoch", "ascending")])
    values = ("total", "n", "top")
    last = rows.group_by("key", use_threads=False).aggregate([(name, "last") for name in values])
    return last.select(["key", *(f"{name}_last" for name in values)]).rename_columns(["key", *values])


register(
    Workload(
        name=NAME,
        description="sum, count and max of a value per key, in update mode: read-modify-write of keyed state",
        feeds={FEED: KEYED_SCHEMA},
        inputs=_inputs,
        queries={
            OURS: _tailrace,
            "spark-rocksdb": _spark,
            "spark-memory": _spark,
            "shuffle-floor": _shuffle_floor,
            "transfer-floor": _transfer_floor,
        },
        oracle=_oracle,
        final=_final,
        parameters={"keys": Parameter(1_000_000, "different keys, all equally likely")},
        rows=500_000,
    )
)
