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
from tailrace.testing.sessions import judge_sessions
from tailrace.testing.spark_types import spark_schema

_START, _END = "__start", "__end"
_SHOWN = "__shown"  # the epoch whose output this copy of a row belongs to
_CAME = "__came"  # the epoch the row came in


@dataclass(frozen=True)
class ExpectedEpoch:
    """``rows``: where the question has windows a struct of (start, end), then keys, then aggregates.

    The struct is called ``window``, that of sessions ``session_window``.
    """

    epoch: int
    rows: pa.Table
    late: int
    closing_watermark: int | None


def expected(spark: SparkSession, question: Question, batches: Sequence[pa.Table]) -> list[ExpectedEpoch]:
    """The output of every epoch, one epoch per batch. Batches share one schema."""
    copies = _Copies(batches)
    late, closing = (_add_sessions if question.has_sessions else _add_windows)(question, batches, copies)
    answer = _aggregate(spark, question, copies.table())
    shown = answer[_SHOWN]
    answer = answer.drop_columns([_SHOWN])
    return [
        ExpectedEpoch(epoch, answer.filter(pc.equal(shown, epoch)), late[epoch], closing[epoch])
        for epoch in range(len(batches))
    ]


class _Copies:
    """Copies of rows of the batches, one for each window that a row counts in and each epoch that shows it."""

    def __init__(self, batches: Sequence[pa.Table]) -> None:
        self._batches = batches
        self._firsts = [0]
        for batch in batches:
            self._firsts.append(self._firsts[-1] + batch.num_rows)
        self._taken: list[int] = []
        self._notes: list[tuple[int | None, int | None, int, int]] = []

    def add(self, epoch: int, row: int, start: int | None, end: int | None, shown: int) -> None:
        self._taken.append(self._firsts[epoch] + row)
        self._notes.append((start, end, shown, epoch))

    def table(self) -> pa.Table:
        rows = pa.concat_tables(self._batches).take(pa.array(self._taken, pa.int64()))
        for place, name in enumerate((_START, _END, _SHOWN, _CAME)):
            rows = rows.append_column(name, pa.array([note[place] for note in self._notes], pa.int64()))
        return rows


_Judged = tuple[Sequence[int], Sequence[int | None]]  # late rows and closing watermarks, by epoch


def _add_windows(question: Question, batches: Sequence[pa.Table], copies: _Copies) -> _Judged:
    judgement = judge(question, [_times(batch, question.time_column) for batch in batches])
    for one in judgement.contributions:
        end = None if one.start is None or question.windows is None else one.start + question.windows.size
        if question.output_mode != "append":
            # One copy for every epoch that could show it; in update, those that did not touch it are filtered below.
            epochs = range(one.epoch, len(batches))
        else:
            assert end is not None
            closes = judgement.closes(end)
            epochs = range(0) if closes is None else range(closes, closes + 1)
        for epoch in epochs:
            copies.add(one.epoch, one.row, one.start, end, epoch)
    return judgement.late, judgement.closing


def _add_sessions(question: Question, batches: Sequence[pa.Table], copies: _Copies) -> _Judged:
    keys = [[tuple(row.values()) for row in batch.select(list(question.keys)).to_pylist()] for batch in batches]
    if not question.keys:
        keys = [[()] * batch.num_rows for batch in batches]
    times = [_times(batch, question.time_column) for batch in batches]
    ends = None if question.session_ends is None else [_times(batch, question.session_ends) for batch in batches]
    judgement = judge_sessions(question, keys, times, ends)
    for session in judgement.sessions:
        for epoch, row in session.rows:
            copies.add(epoch, row, session.start, session.end, session.shown)
    return judgement.late, judgement.closing


def _times(batch: pa.Table, name: str | None) -> list[int | None]:
    if name is None:
        return [None] * batch.num_rows
    column = batch[name]
    times: list[int | None] = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    return times


def _aggregate(spark: SparkSession, question: Question, rows: pa.Table) -> pa.Table:
    frame = spark.createDataFrame(rows, schema=spark_schema(rows.schema))
    grouped = frame.groupBy(_SHOWN, _START, _END, *(_quoted(key) for key in question.keys))
    outputs = [_column(question, aggregate).alias(aggregate.name) for aggregate in question.aggregates]
    answer = grouped.agg(*outputs, F.max(_CAME).alias(_CAME))
    if question.output_mode == "update":
        answer = answer.filter(F.col(_CAME) == F.col(_SHOWN))
    table = answer.drop(_CAME).toArrow()
    name = question.window_column
    if name is None:
        return table.drop_columns([_START, _END])
    assert question.time_column is not None
    type_ = pa.timestamp("us", rows.schema.field(question.time_column).type.tz)
    edges = [pa.array(table[edge].to_pylist(), pa.int64()).cast(type_) for edge in (_START, _END)]
    window = pa.StructArray.from_arrays(edges, names=["start", "end"])
    return table.drop_columns([_START, _END]).add_column(0, name, window)


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
    if aggregate.function == "top_k":
        return F.slice(F.sort_array(F.collect_list(value), asc=False), 1, int(aggregate.argument or 1))
    if aggregate.function == "collect_list":
        assert question.time_column is not None
        pair = F.struct(_quoted(question.time_column).alias("time"), value.alias("value"))
        return F.transform(F.array_sort(F.collect_list(F.when(value.isNotNull(), pair))), lambda one: one["value"])
    function = getattr(F, aggregate.function, None)
    if function is None:
        raise ValueError(f"{aggregate.name}: Spark has no function {aggregate.function!r}, and the oracle no other")
    column: Column = function(value)
    return F.sort_array(column) if aggregate.function == "collect_set" else column
