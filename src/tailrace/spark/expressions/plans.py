"""The nodes of analysed logical plans, and DataFrames made of parts of them. See ``catalyst``, whose rules hold here.

Threads: the caller's. Each access is a call to the JVM, so that readers keep what they need twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tailrace.spark.expressions.catalyst import (
    Expression,
    analysed_plan,
    catalyst,
    items_of,
    java_class,
    optimized_plan,
    place_of,
    plan_under,
    rows_of_plan,
    seq_of,
    uses,
)


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate function as an aggregation calls it. ``condition``: of its ``FILTER`` clause."""

    function: Expression
    distinct: bool
    condition: Expression | None
    result: Expression  # the column in which the rest of the aggregation finds it
    within: Sequence[Expression]  # what the aggregation gives, the call somewhere among it

    @property
    def place(self) -> str:
        """Where it is written; PySpark knows that of its arguments, or of the name that it is given."""
        if self.function.place:
            return self.function.place
        around = (each for each in self.within if any(part.same_as(self.function) for part in each.walk()))
        return next(filter(None, (each.place for each in around)), "")


@dataclass(frozen=True)
class Aggregated:
    """An aggregation taken apart: ``results`` are made of the keys' and the calls' columns."""

    keys: list[Expression]
    calls: list[AggregateCall]
    results: list[Expression]


@dataclass(frozen=True)
class EqualKeys:
    """The condition of a join: expressions of the left and of the right side that are equal, and what is left of it."""

    left: list[Expression]
    right: list[Expression]
    rest: Expression | None


_ANY_WATERMARK_MS = 1 << 40
"""Bounds move with the watermark: any will do to see how far they are from it. (Below 2^31 it would be no long.)"""


class Node:
    """A node of an analysed plan."""

    def __init__(self, java: Any) -> None:
        self._java = java

    @cached_property
    @uses("TreeNode.nodeName()")
    def kind(self) -> str:
        return str(self._java.nodeName())

    @cached_property
    @uses("LogicalPlan.children()")
    def children(self) -> list[Node]:
        return [Node(each) for each in items_of(self._java.children())]

    @property
    def child(self) -> Node:
        (only,) = self.children
        return only

    @cached_property
    @uses("LogicalPlan.isStreaming()")
    def is_streaming(self) -> bool:
        return bool(self._java.isStreaming())

    @cached_property
    @uses("LogicalPlan.output()")
    def output(self) -> list[Expression]:
        return [Expression(each) for each in items_of(self._java.output())]

    @cached_property
    @uses("QueryPlan.expressions()")
    def expressions(self) -> list[Expression]:
        return [Expression(each) for each in items_of(self._java.expressions())]

    @cached_property
    @uses("QueryPlan.subqueries()")
    def subqueries(self) -> list[Node]:
        """Plans inside its expressions."""
        return [Node(each) for each in items_of(self._java.subqueries())]

    @uses("Filter.condition()")
    def condition(self) -> Expression:
        """Of a ``Filter``."""
        return Expression(self._java.condition())

    @uses("Expand.projections()")
    def first_projection(self) -> list[Expression]:
        """Of an ``Expand``: what its first row of each is made of."""
        return [Expression(each) for each in items_of(self._java.projections().apply(0))]

    @uses("Join.joinType()")
    def join_type(self) -> str:
        return str(self._java.joinType().toString())

    @uses("ExtractEquiJoinKeys.unapply()")
    def equal_keys(self) -> EqualKeys | None:
        """Of a ``Join``; None where nothing has to be equal."""
        found = catalyst("planning.ExtractEquiJoinKeys").unapply(self._java)
        if not found.isDefined():
            return None
        parts = found.get()
        left, right = ([Expression(each) for each in items_of(keys)] for keys in (parts._2(), parts._3()))
        return EqualKeys(left, right, Expression(parts._4().get()) if parts._4().isDefined() else None)

    @uses("StreamingJoinHelper.getStateValueWatermark()")
    def state_bound_ms(self, side: int) -> int | None:
        """Of a ``Join``: rows of this side (0: left) whose time is at or before the other's watermark and so much match
        nothing that comes; None: any of them may.
        """
        own, other = (self.children[number]._java.outputSet() for number in (side, 1 - side))
        helper, any_watermark = (
            catalyst("analysis.StreamingJoinHelper"),
            java_class("scala.Option").apply(_ANY_WATERMARK_MS),
        )
        found = helper.getStateValueWatermark(own, other, self._java.condition(), any_watermark)
        return int(found.get()) - _ANY_WATERMARK_MS if found.isDefined() else None

    def optimized(self, spark: SparkSession) -> Node:
        """As Spark runs it."""
        return Node(optimized_plan(spark, self._java))

    @cached_property
    @uses("TreeNode.origin()")
    def place(self) -> str:
        """Where it is written, or something that it is made of; empty where Spark does not know."""
        return place_of(self._java) or next(filter(None, (each.place for each in self.expressions)), "")

    @cached_property
    @uses("TreeNode.containsPattern()")
    def reads_clock(self) -> bool:
        """Whether it, or something below it, depends on the time of day."""
        return bool(self._java.containsPattern(catalyst("trees.TreePattern").CURRENT_LIKE()))

    @uses("EventTimeWatermark.eventTime()")
    def event_time_id(self) -> int:
        """Of an ``EventTimeWatermark``: its column."""
        return int(self._java.eventTime().exprId().id())

    @uses("LocalLimit()")
    def limited(self) -> Node:
        """A limit over this node that leaves no row out."""
        endless = catalyst("expressions.Literal")(
            (1 << 31) - 1, java_class("org.apache.spark.sql.types.DataTypes").IntegerType
        )
        return Node(catalyst("plans.logical.LocalLimit")(endless, self._java))

    @uses("Filter()")
    def where(self, condition: Expression) -> Node:
        """A filter over this node."""
        return Node(catalyst("plans.logical.Filter")(condition._java, self._java))

    @uses("Deduplicate.keys()")
    def compared(self) -> list[Expression]:
        """Of a ``Deduplicate``: the columns by which rows are compared."""
        return [Expression(each) for each in items_of(self._java.keys())]

    @uses("PhysicalAggregation.unapply()")
    def aggregated(self) -> Aggregated:
        """Of an ``Aggregate``."""
        parts = catalyst("planning.PhysicalAggregation").unapply(self._java).get()
        return Aggregated(
            [Expression(each) for each in items_of(parts._1())],
            [_call(each, self.expressions) for each in items_of(parts._2())],
            [Expression(each) for each in items_of(parts._3())],
        )

    @uses("LogicalPlan.withNewChildren()")
    def with_children(self, children: Sequence[Node]) -> Node:
        return Node(self._java.withNewChildren(seq_of([each._java for each in children])))

    def with_child(self, number: int, child: Node) -> Node:
        """The node over another child in the place of one."""
        children = list(self.children)
        children[number] = child
        return self.with_children(children)

    @uses("Project()")
    def choosing(self, expressions: Iterable[Expression]) -> Node:
        """A projection of this node."""
        chosen = seq_of([each._java for each in expressions])
        return Node(catalyst("plans.logical.Project")(chosen, self._java))

    def walk(self) -> Iterator[Node]:
        """Itself and all below that streams, from the top."""
        yield self
        for child in self.children:
            if child.is_streaming:
                yield from child.walk()

    @uses("Dataset.ofRows()")
    def frame(self, spark: SparkSession) -> DataFrame:
        return rows_of_plan(spark, self._java)


def _call(java: Any, within: Sequence[Expression]) -> AggregateCall:
    condition = java.filter()
    return AggregateCall(
        Expression(java.aggregateFunction()),
        bool(java.isDistinct()),
        Expression(condition.get()) if condition.isDefined() else None,
        Expression(java.resultAttribute()),
        within,
    )


def plan_of(frame: DataFrame) -> Node:
    """The analysed plan of a DataFrame, SQL's common table expressions put where they are used."""
    return Node(analysed_plan(frame))


@dataclass(frozen=True)
class Leaf:
    """Where rows come in, in the place of an operator.

    ``columns``: those that the part reads, and the number of each among the columns of such rows; of a window, the
    numbers of its start and its end. ``results``: what the part begins with there, made of these; None: they are passed
    on.
    """

    columns: Sequence[tuple[Expression, int | tuple[int, int]]]
    results: Sequence[Expression] | None


@dataclass(frozen=True)
class Above:
    """A node above operators. ``below``: what leads to them, by the number of the node's child."""

    node: Node
    below: Mapping[int, Above | Leaf]

    def walk(self) -> Iterator[Above]:
        """The lowest first."""
        for each in self.below.values():
            if isinstance(each, Above):
                yield from each.walk()
        yield self


_Plans = Iterator[Any]


class Template:
    """A part of a plan, to be put over rows that come in place of what was below it.

    All of it is analysed already, and so is what is made of it: Spark only has to plan it.
    """

    def __init__(self, root: Above | Leaf) -> None:
        self._make = _made(root)

    @uses("LogicalPlan.setAnalyzed()")
    def over(self, *frames: DataFrame) -> DataFrame:
        """``frames``: of the leaves, from the left."""
        plan = self._make(iter([plan_under(frame) for frame in frames]))
        plan.setAnalyzed()
        return rows_of_plan(frames[0].sparkSession, plan)


def _made(place: Above | Leaf) -> Callable[[_Plans], Any]:
    return _made_leaf(place) if isinstance(place, Leaf) else _made_above(place)


def _made_above(place: Above) -> Callable[[_Plans], Any]:
    node, below = place.node._java, {number: _made(each) for number, each in place.below.items()}
    children = [each._java for each in place.node.children]

    def make(plans: _Plans) -> Any:
        new = [below[number](plans) if number in below else child for number, child in enumerate(children)]
        return node.withNewChildren(seq_of(new))

    return make


def _marked(column: Any) -> bool:
    """Whether Spark knows a column as an event time."""
    return Expression(column).delay_ms is not None


def _made_leaf(leaf: Leaf) -> Callable[[_Plans], Any]:
    named = [
        (each._java.exprId(), each.name, number, each._java.metadata(), each.delay_ms is not None)
        for each, number in leaf.columns
    ]
    results = None if leaf.results is None else [each._java for each in leaf.results]

    def make(plans: _Plans) -> Any:
        alias, project = catalyst("expressions.Alias"), catalyst("plans.logical.Project")
        none, empty = java_class("scala.Option").empty(), seq_of([])
        below = next(plans)
        columns = below.output()
        chosen = []
        for id_, name, number, metadata, is_time in named:
            if isinstance(number, int):
                value = columns.apply(number)
                # Spark does not know an event time that it has not made.
                marks = java_class("scala.Option").apply(metadata) if is_time and not _marked(value) else none
                chosen.append(alias(value, name, id_, empty, marks, empty))
            else:
                window = _window(*map(columns.apply, number))
                chosen.append(alias(window, name, id_, empty, java_class("scala.Option").apply(metadata), empty))
        plan = project(seq_of(chosen), below)
        return plan if results is None else project(seq_of(results), plan)

    return make


def _window(start: Any, end: Any) -> Any:
    literal, types = catalyst("expressions.Literal"), java_class("org.apache.spark.sql.types.DataTypes")
    text = java_class("org.apache.spark.unsafe.types.UTF8String")
    names = [literal(text.fromString(name), types.StringType) for name in ("start", "end")]
    window = catalyst("expressions.CreateNamedStruct")(seq_of([names[0], start, names[1], end]))
    none = literal(None, window.dataType())
    return catalyst("expressions.If")(catalyst("expressions.IsNull")(start), none, window)
