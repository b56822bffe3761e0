"""What the readers of operators share: what they are given and what they make."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from tailrace.api.relations import Relation, United, Watermark
from tailrace.api.stream import Stream
from tailrace.errors import AnalysisError
from tailrace.ids import Micros
from tailrace.spark.expressions.catalyst import Expression
from tailrace.spark.expressions.columns import Columns, Texts
from tailrace.spark.expressions.passing import passing
from tailrace.spark.expressions.places import placed
from tailrace.spark.expressions.plans import Node
from tailrace.spark.plan_reader.united import apart, marks_of
from tailrace.spark.query.runtime import SparkRuntime
from tailrace.spark.sources.nested import kept_fields

_STATELESS = frozenset(
    {
        *("Project", "Filter", "SubqueryAlias", "View", "Generate", "Expand", "Union", "Sample", "ResolvedHint"),
        *("Repartition", "RepartitionByExpression", "RebalancePartitions", "MapInPandas", "MapInArrow"),
        *("PythonMapInArrow", "MapElements", "MapPartitions", "SerializeFromObject", "DeserializeToObject"),
        *("TypedFilter", "EventTimeWatermark", "CollectMetrics", "Join"),
    }
)
_CALLS = {
    "Aggregate": "groupBy().agg()",
    "Deduplicate": "dropDuplicates()",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark()",
    "Distinct": "SELECT DISTINCT",
    "FlatMapGroupsWithState": "mapGroupsWithState",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "TransformWithState": "transformWithState",
    "TransformWithStateInPySpark": "transformWithState",
    "GlobalLimit": "limit()",
    "LocalLimit": "limit()",
    "Sort": "orderBy()",
}
"""What a user has written, by the node that it becomes."""


Name = str | tuple[str, str]


@dataclass(frozen=True)
class Made:
    """What a reader makes of a node: a relation, and where the rest of the plan finds its columns.

    ``leaf``: columns of the plan, and the names of the relation's that have their values; of a window, those of its
    start and its end. ``results``: what the node's own output is made of these; None: these are its output. ``rest``: a
    condition that the operator leaves to a filter.
    """

    relation: Relation
    leaf: tuple[tuple[Expression, Name], ...]
    results: tuple[Expression, ...] | None
    rest: Expression | None = None


@dataclass(frozen=True)
class Reading:
    """``plan``: the whole one. ``needed``: the columns of the operator that something above it reads. ``texts``: gets
    what the operator's columns stand for. ``numbers``: of operators that are still to be read, from the last one down.
    ``source``: the rows of a plan below, in the columns that an operator reads. ``timed``: of each stream that was
    read, whether it has a watermark that counts. ``final``: whether the query gives rows once, when they are final.
    ``number``: that of the operator.
    """

    spark: SparkSession
    plan: Node
    needed: frozenset[int]
    texts: Texts
    numbers: Iterator[int]
    source: Callable[[Node, Columns, Reading], Stream]
    timed: list[bool]
    final: bool = True
    number: int = 0

    def columns(self, gone: tuple[int, str] | None = None, prefix: str = "c") -> Columns:
        """For the columns of an input."""
        return Columns(self.texts, lambda number, _: self.name(prefix, number), gone)

    def name(self, prefix: str, number: int, text: str | None = None) -> str:
        """The name of an operator's column. They must differ between the operators of a query."""
        name = f"{prefix}{number}_{self.number}" if self.number else f"{prefix}{number}"
        return name if text is None else self.texts.add(name, text)

    def stream(
        self,
        plan: Node,
        columns: Columns,
        time: tuple[str, int] | None = None,
        *,
        united: bool = True,
        derived: bool = False,
    ) -> Stream:
        """The rows below an operator, in the columns that it reads. ``time``: which one is the event time that counts,
        and the delay of its watermark in milliseconds. ``united``: whether they may be several streams, each with a
        watermark of its own. ``derived``: of a stream, the event time is made of the column with the watermark.
        """
        stream = self.source(plan, columns, self)
        if stream.relation is None:
            return self._source(plan, columns, stream, time, united, derived)
        if time is None:
            return replace(stream, watermark=None)
        if stream.watermark is None or stream.watermark.column.name != time[0]:
            raise AnalysisError(
                f"{time[0]} is the event time here, and rows of the operator below have another or none"
            )
        return stream

    def _source(
        self, plan: Node, columns: Columns, stream: Stream, time: tuple[str, int] | None, united: bool, derived: bool
    ) -> Stream:
        self.timed.append(time is not None)
        if time is None:
            return stream
        marks = marks_of(plan)
        if len(marks) > 1 or (derived and marks):
            return self._by_clocks(plan, columns, time, marks)
        parts = apart(plan)
        if (len(parts) > 1 and not united) or derived:
            raise AnalysisError(
                "one side of a join are several streams, each with a watermark of its own: call withWatermark once, "
                "behind their union"
            )
        timed = stream.withWatermark(time[0], f"{parts[0][1]} milliseconds")
        if len(parts) == 1 or timed.watermark is None:
            return timed
        sources = [self.source(part, columns, self).source for part, _ in parts]
        given = [replace(timed.watermark, delay=Micros(delay * 1000)) for _, delay in parts]
        return replace(timed, source=United(tuple(zip(sources, given, strict=True))))

    def _by_clocks(
        self, plan: Node, columns: Columns, time: tuple[str, int], marks: Sequence[tuple[Expression, int]]
    ) -> Stream:
        """The rows of a stream whose watermark goes on by columns that are not, or not alone, its event time."""
        for column, _ in marks:
            columns.take(column)
        stream = self.source(passing(plan, [column for column, _ in marks]), columns, self)
        timed = stream.withWatermark(time[0], f"{time[1]} milliseconds")
        assert timed.watermark is not None
        fields = {field.name: field for field in stream.schema}
        delays = [(fields[columns.take(column)], Micros(delay * 1000)) for column, delay in marks]
        clocks = tuple(dict.fromkeys(Watermark(field, delay) for field, delay in delays))
        return replace(timed, watermark=replace(timed.watermark, clocks=clocks))


Reader = Callable[[Node, Reading], Made]


def stream_of(frame: DataFrame) -> Stream:
    return Stream(frame, kept_fields(frame.schema), SparkRuntime(frame.sparkSession))


def call_of(node: Node) -> str:
    return _CALLS.get(node.kind, node.kind)


def stateless(plan: Node) -> Node:
    """A plan that Spark runs without state, and without watermarks, which are the operators' to keep."""
    for node in plan.walk():
        with placed(node):
            if any(each.is_streaming for each in node.subqueries):
                raise AnalysisError(f"a subquery of a {node.kind} reads a stream")
            if node.children and node.kind not in _STATELESS:
                raise AnalysisError(f"{call_of(node)} before an operator: Tailrace does not read it from a plain query")
    return _without_watermarks(plan)


def _without_watermarks(node: Node) -> Node:
    if node.kind == "EventTimeWatermark":
        return _without_watermarks(node.child)
    children = [_without_watermarks(child) if child.is_streaming else child for child in node.children]
    if all(new is old for new, old in zip(children, node.children, strict=True)):
        return node
    return node.with_children(children)


def event_time_of(plan: Node, expression: Expression) -> int | None:
    """The delay of the watermark on a column, in milliseconds; None: it is not the event time of these rows."""
    if not expression.is_attribute:
        return None
    found = next((each for each in plan.output if each.id == expression.id), None)
    return None if found is None else found.delay_ms
