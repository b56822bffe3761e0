"""The oracle: what a streaming aggregation must emit, epoch by epoch, recomputed from scratch.

The model in ``lateness`` decides which rows count and when; a Spark *batch* query computes the aggregates over the
rows that do. No code of the engine is used, so a disagreement is a fault of one of them. The aggregates that Spark
leaves open are defined here: ``first`` (``last``) is the value with the smallest (largest) (event time, value), a null
value sorting first; ``collect_list`` is in the order of (event time, value).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tailrace.testing.lateness import judge
from tailrace.testing.question import Aggregate, Question
from tailrace.testing.spark_types import spark_schema

_START = "__start"
_SHOWN = "__shown"  # the epoch whose emission this copy of a row belongs to
_CAME = "__came"  # the epoch the row came in


@dataclass(frozen=True)
class ExpectedEpoch:
    """``rows``: where the question has windows a struct ``window`` (start, end), then keys, then aggregates."""

    epoch: int
    rows: pa.Table
    late: int
    closing_watermark: int | None


def expected(spark: SparkSession, question: Question, batches: Sequence[pa.Table]) -> list[ExpectedEpoch]:
    """The emission of every epoch, one epoch per batch. Batches share one schema."""
    judgement = judge(question, [_times(question, batch) for batch in batches])
    firsts = [0]
    for batch in batches:
        firsts.append(firsts[-1] + batch.num_rows)
    taken: list[int] = []
    starts: list[int | None] = []
    shown: list[int] = []
    came: list[int] = []
    for one in judgement.contributions:
        if question.output_mode == "update":
            # One copy for every epoch that could show it; epochs that did not touch the group are filtered below.
            epochs = range(one.epoch, len(batches))
        else:
            assert one.start is not None and question.windows is not None
            closes = judgement.closes(one.start + question.windows.size)
            epochs = range(0) if closes is None else range(closes, closes + 1)
        for epoch in epochs:
            taken.append(firsts[one.epoch] + one.row)
            starts.append(one.start)
            shown.append(epoch)
            came.append(one.epoch)
    rows = pa.concat_tables(batches).take(pa.array(taken, pa.int64()))
    rows = rows.append_column(_START, pa.array(starts, pa.int64()))
    rows = rows.append_column(_SHOWN, pa.array(shown, pa.int32())).append_column(_CAME, pa.array(came, pa.int32()))
    answer = _aggregate(spark, question, rows)
    shown_column = answer[_SHOWN]
    answer = answer.drop_columns([_SHOWN])
    return [
        ExpectedEpoch(
            epoch,
            answer.filter(pc.equal(shown_column, epoch)),
            judgement.late[epoch],
            judgement.closing[epoch],
        )
        for epoch in range(len(batches))
    ]


def _times(question: Question, batch: pa.Table) -> list[int | None]:
    if question.time_column is None:
        return [None] * batch.num_rows
    column = batch[question.time_column]
    times: list[int | None] = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    return times


def _aggregate(spark: SparkSession, question: Question, rows: pa.Table) -> pa.Table:
    frame = spark.createDataFrame(rows, schema=spark_schema(rows.schema))
    grouped = frame.groupBy(_SHOWN, _START, *(_quoted(key) for key in question.keys))
    outputs = [_column(question, aggregate).alias(aggregate.name) for aggregate in question.aggregates]
    answer = grouped.agg(*outputs, F.max(_CAME).alias(_CAME))
    if question.output_mode == "update":
        answer = answer.filter(F.col(_CAME) == F.col(_SHOWN))
    table = answer.drop(_CAME).toArrow()
    if question.windows is None:
        return table.drop_columns([_START])
    assert question.time_column is not None
    type_ = pa.timestamp("us", rows.schema.field(question.time_column).type.tz)
    start = table[_START].combine_chunks()
    if isinstance(start, pa.ChunkedArray):  # no chunk at all
        start = pa.array([], pa.int64())
    end = pc.add(start, question.windows.size)
    window = pa.StructArray.from_arrays([start.cast(type_), end.cast(type_)], names=["start", "end"])
    return table.drop_columns([_START]).add_column(0, "window", window)


def _quoted(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _column(question: Question, aggregate: Aggregate) -> Column:
    if aggregate.column is None:
        return F.count(F.lit(1))
    value = _quoted(aggregate.column)
    if aggregate.function in ("first", "last"):
        time = F.lit(0) if question.time_column is None else _quoted(question.time_column)
        pair = F.struct(time.alias("time"), value.alias("value"))
        if aggregate.ignore_nulls:
            pair = F.when(value.isNotNull(), pair)
        chosen = F.min(pair) if aggregate.function == "first" else F.max(pair)
        return chosen["value"]
    if aggregate.function == "quantile":
        return F.percentile(value, F.lit(aggregate.argument))
    if aggregate.function == "count_distinct":
        return F.count_distinct(value)
    if aggregate.function == "top_k":
        return F.slice(F.sort_array(F.collect_list(value), asc=False), 1, int(aggregate.argument or 1))
    if aggregate.function == "collect_list":
        assert question.time_column is not None
        pair = F.struct(_quoted(question.time_column).alias("time"), value.alias("value"))
        return F.transform(F.array_sort(F.collect_list(F.when(value.isNotNull(), pair))), lambda one: one["value"])
    functions = {"count": F.count, "sum": F.sum, "min": F.min, "max": F.max, "avg": F.avg, "stddev": F.stddev}
    return functions[aggregate.function](value)
