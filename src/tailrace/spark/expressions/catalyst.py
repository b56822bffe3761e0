"""Analysed logical plans: their nodes and expressions, and DataFrames made of parts of them.

Only this module and ``private`` touch Spark's classes in the JVM. None of this is promised by Spark, so any release may
change it: each use is a small method inside ``private.changed``, which says what is gone, and
``tests/spark/expressions/test_catalyst.py`` runs them on a live session.

Columns are told apart by the ids of expressions: names may come twice. An id means the same column in all of one plan,
and lives as long as the session: another analysis of the same query has other ids.

Threads: the caller's. Each access is a call to the JVM, so that readers keep what they need twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

from py4j.java_gateway import get_field
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from tailrace.spark.private import changed

_P = ParamSpec("_P")
_T = TypeVar("_T")

_CLASSIC = "org.apache.spark.sql.classic"
_DELAY = "spark.watermarkDelayMs"
_WINDOW_MARKS = {"spark.timeWindow": "window", "spark.sessionWindow": "session_window"}


def _uses(what: str) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Names what a method needs of Spark, for the error where Spark has it no more."""

    def around(method: Callable[_P, _T]) -> Callable[_P, _T]:
        @wraps(method)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            with changed(what):
                return method(*args, **kwargs)

        return call

    return around


def _list(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]


class Expression:
    """An expression of an analysed plan."""

    def __init__(self, java: Any) -> None:
        self._java = java

    @cached_property
    @_uses("TreeNode.nodeName()")
    def kind(self) -> str:
        """The name of its class: ``Alias``, ``AttributeReference``, ``Sum``."""
        return str(self._java.getClass().getSimpleName())

    @cached_property
    @_uses("Expression.sql()")
    def text(self) -> str:
        """As a user may have written it."""
        return str(self._java.sql())

    @cached_property
    @_uses("TreeNode.children()")
    def children(self) -> list[Expression]:
        return [Expression(each) for each in _list(self._java.children())]

    @cached_property
    @_uses("NamedExpression.exprId()")
    def id(self) -> int:
        """Of a named expression."""
        return int(self._java.exprId().id())

    @cached_property
    @_uses("NamedExpression.name()")
    def name(self) -> str:
        """Of a named expression."""
        return str(self._java.name())

    @cached_property
    @_uses("Expression.dataType()")
    def type_name(self) -> str:
        return str(self._java.dataType().simpleString())

    @cached_property
    @_uses("Expression.nullable()")
    def nullable(self) -> bool:
        return bool(self._java.nullable())

    @cached_property
    @_uses("Expression.references()")
    def references(self) -> set[int]:
        """The ids of the columns that it reads."""
        return {int(each.exprId().id()) for each in _list(self._java.references().toSeq())}

    @cached_property
    @_uses("Expression.deterministic()")
    def repeatable(self) -> bool:
        """Whether it gives the same whenever it is computed: it is neither random nor the time of day."""
        pattern = _catalyst("trees.TreePattern").CURRENT_LIKE()
        return bool(self._java.deterministic()) and not self._java.containsPattern(pattern)

    @cached_property
    @_uses("NamedExpression.metadata()")
    def delay_ms(self) -> int | None:
        """Of an event time column, the delay of its watermark."""
        metadata = self._java.metadata()
        return int(metadata.getLong(_DELAY)) if metadata.contains(_DELAY) else None

    @cached_property
    @_uses("NamedExpression.metadata()")
    def window_kind(self) -> str:
        """Of a column with windows that Spark has made, the function that makes such; else empty."""
        metadata = self._java.metadata()
        return next((kind for mark, kind in _WINDOW_MARKS.items() if metadata.contains(mark)), "")

    @property
    def is_attribute(self) -> bool:
        return self.kind == "AttributeReference"

    @property
    def unaliased(self) -> Expression:
        """What an alias names; else the expression itself."""
        return self.children[0] if self.kind == "Alias" else self

    @cached_property
    @_uses("NamedExpression.toAttribute()")
    def attribute(self) -> Expression:
        """The column that a named expression makes."""
        return Expression(self._java.toAttribute())

    @_uses("Expression.eval()")
    def constant(self) -> Any:
        """The value of a constant; None where it is none, or null."""
        return self._java.eval(None) if self._java.foldable() else None

    @_uses("Expression.eval()")
    def interval(self) -> tuple[int, int, int] | None:
        """Months, days and microseconds of a constant interval; None where it is no constant, or null."""
        found = self.constant()
        if found is None:
            return None
        months, days, micros = (get_field(found, part) for part in ("months", "days", "microseconds"))
        return int(months), int(days), int(micros)

    def flag(self, *path: str) -> str | None:
        """A property of a function that is not among its children, such as whether it ignores nulls; None: it has none.

        Properties come and go with Spark's versions, and some functions never had them.
        """
        value = self._java
        for name in path:
            try:
                value = getattr(value, name)()
            except Py4JJavaError:
                raise
            except (Py4JError, TypeError):
                return None
        return str(value).lower()

    def walk(self) -> Iterator[Expression]:
        """Itself and all that it is made of, from the top."""
        yield self
        for child in self.children:
            yield from child.walk()

    @_uses("Expression.semanticEquals()")
    def same_as(self, other: Expression) -> bool:
        """Whether both always give the same."""
        return bool(self._java.semanticEquals(other._java))

    @_uses("ExpressionUtils.column()")
    def column(self) -> Column:
        """As a PySpark column, for a DataFrame that has the columns that it reads."""
        return ClassicColumn(_class(f"{_CLASSIC}.ExpressionUtils").column(self._java))


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate function as an aggregation calls it. ``condition``: of its ``FILTER`` clause."""

    function: Expression
    distinct: bool
    condition: Expression | None
    result: Expression  # the column in which the rest of the aggregation finds it


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
    @_uses("TreeNode.nodeName()")
    def kind(self) -> str:
        return str(self._java.nodeName())

    @cached_property
    @_uses("LogicalPlan.children()")
    def children(self) -> list[Node]:
        return [Node(each) for each in _list(self._java.children())]

    @property
    def child(self) -> Node:
        (only,) = self.children
        return only

    @cached_property
    @_uses("LogicalPlan.isStreaming()")
    def is_streaming(self) -> bool:
        return bool(self._java.isStreaming())

    @cached_property
    @_uses("LogicalPlan.output()")
    def output(self) -> list[Expression]:
        return [Expression(each) for each in _list(self._java.output())]

    @cached_property
    @_uses("QueryPlan.expressions()")
    def expressions(self) -> list[Expression]:
        return [Expression(each) for each in _list(self._java.expressions())]

    @cached_property
    @_uses("QueryPlan.subqueries()")
    def subqueries(self) -> list[Node]:
        """Plans inside its expressions."""
        return [Node(each) for each in _list(self._java.subqueries())]

    @_uses("Filter.condition()")
    def condition(self) -> Expression:
        """Of a ``Filter``."""
        return Expression(self._java.condition())

    @_uses("Expand.projections()")
    def first_projection(self) -> list[Expression]:
        """Of an ``Expand``: what its first row of each is made of."""
        return [Expression(each) for each in _list(self._java.projections().apply(0))]

    @_uses("Join.joinType()")
    def join_type(self) -> str:
        return str(self._java.joinType().toString())

    @_uses("ExtractEquiJoinKeys.unapply()")
    def equal_keys(self) -> EqualKeys | None:
        """Of a ``Join``; None where nothing has to be equal."""
        found = _catalyst("planning.ExtractEquiJoinKeys").unapply(self._java)
        if not found.isDefined():
            return None
        parts = found.get()
        left, right = ([Expression(each) for each in _list(keys)] for keys in (parts._2(), parts._3()))
        return EqualKeys(left, right, Expression(parts._4().get()) if parts._4().isDefined() else None)

    @_uses("StreamingJoinHelper.getStateValueWatermark()")
    def state_bound_ms(self, side: int) -> int | None:
        """Of a ``Join``: rows of this side (0: left) whose time is at or before the other's watermark and so much match
        nothing that comes; None: any of them may.
        """
        own, other = (self.children[number]._java.outputSet() for number in (side, 1 - side))
        helper, any_watermark = (
            _catalyst("analysis.StreamingJoinHelper"),
            _class("scala.Option").apply(_ANY_WATERMARK_MS),
        )
        found = helper.getStateValueWatermark(own, other, self._java.condition(), any_watermark)
        return int(found.get()) - _ANY_WATERMARK_MS if found.isDefined() else None

    @_uses("SessionState.optimizer()")
    def optimized(self, spark: SparkSession) -> Node:
        """As Spark runs it."""
        session: Any = spark._jsparkSession
        return Node(session.sessionState().optimizer().execute(self._java))

    @_uses("Filter()")
    def where(self, condition: Expression) -> Node:
        """A filter over this node."""
        return Node(_catalyst("plans.logical.Filter")(condition._java, self._java))

    @_uses("Deduplicate.keys()")
    def keys(self) -> list[Expression]:
        """Of a ``Deduplicate``: the columns by which rows are compared."""
        return [Expression(each) for each in _list(self._java.keys())]

    @_uses("PhysicalAggregation.unapply()")
    def aggregated(self) -> Aggregated:
        """Of an ``Aggregate``."""
        parts = _catalyst("planning.PhysicalAggregation").unapply(self._java).get()
        return Aggregated(
            [Expression(each) for each in _list(parts._1())],
            [_call(each) for each in _list(parts._2())],
            [Expression(each) for each in _list(parts._3())],
        )

    @_uses("LogicalPlan.withNewChildren()")
    def with_children(self, children: Sequence[Node]) -> Node:
        return Node(self._java.withNewChildren(_seq([each._java for each in children])))

    def with_child(self, number: int, child: Node) -> Node:
        """The node over another child in the place of one."""
        children = list(self.children)
        children[number] = child
        return self.with_children(children)

    @_uses("Project()")
    def choosing(self, expressions: Iterable[Expression]) -> Node:
        """A projection of this node."""
        chosen = _seq([each._java for each in expressions])
        return Node(_catalyst("plans.logical.Project")(chosen, self._java))

    def walk(self) -> Iterator[Node]:
        """Itself and all below that streams, from the top."""
        yield self
        for child in self.children:
            if child.is_streaming:
                yield from child.walk()

    @_uses("Dataset.ofRows()")
    def frame(self, spark: SparkSession) -> DataFrame:
        return _frame(spark, self._java)


def _call(java: Any) -> AggregateCall:
    condition = java.filter()
    return AggregateCall(
        Expression(java.aggregateFunction()),
        bool(java.isDistinct()),
        Expression(condition.get()) if condition.isDefined() else None,
        Expression(java.resultAttribute()),
    )


@_uses("DataFrame._jdf.queryExecution().analyzed()")
def plan_of(frame: DataFrame) -> Node:
    """The analysed plan of a DataFrame, SQL's common table expressions put where they are used."""
    jdf: Any = frame._jdf
    plan = jdf.queryExecution().analyzed()
    if plan.containsPattern(_catalyst("trees.TreePattern").CTE()):
        plan = _inline_ctes().apply(plan)
    return Node(plan)


def _inline_ctes() -> Any:
    """Spark's rule that does so for every one; what else it can do differs between versions."""
    rule = _catalyst("optimizer.InlineCTE")
    try:
        return rule(True, False, False)
    except Py4JJavaError:
        raise
    except Py4JError:
        return rule(True, False)


@dataclass(frozen=True)
class Step:
    """A node above an operator, and which of its children leads to the operator."""

    node: Node
    number: int


class Template:
    """A part of a plan, to be put over rows that come in place of what was below it.

    ``leaf``: columns that the part reads, and the number of each among the columns of such rows. ``results``: what the
    part begins with, made of these; None: they are passed on. ``steps``: from the lowest node up. All of it is analysed
    already, and so is what is made of it: Spark only has to plan it.
    """

    def __init__(
        self, leaf: Sequence[tuple[Expression, int]], results: Sequence[Expression] | None, steps: Sequence[Step]
    ) -> None:
        self._leaf = [(each._java.exprId(), each.name, number) for each, number in leaf]
        self._steps = [(step.node._java, step.number, [each._java for each in step.node.children]) for step in steps]
        self._results = None if results is None else [each._java for each in results]

    @_uses("LogicalPlan.setAnalyzed()")
    def over(self, frame: DataFrame) -> DataFrame:
        jdf: Any = frame._jdf
        below = jdf.queryExecution().analyzed()
        alias, project = _catalyst("expressions.Alias"), _catalyst("plans.logical.Project")
        columns, none, empty = below.output(), _class("scala.Option").empty(), _seq([])
        named = [alias(columns.apply(number), name, id_, empty, none, empty) for id_, name, number in self._leaf]
        plan = project(_seq(named), below)
        if self._results is not None:
            plan = project(_seq(self._results), plan)
        for node, number, children in self._steps:
            plan = node.withNewChildren(_seq([*children[:number], plan, *children[number + 1 :]]))
        plan.setAnalyzed()
        return _frame(frame.sparkSession, plan)


def replace_write_stream(writer: Callable[[DataFrame], Any]) -> None:
    """``df.writeStream`` asks ``writer`` from now on; where that gives None it is Spark's own. Idempotent."""

    def ask(frame: DataFrame) -> Any:
        found = writer(frame)
        return DataStreamWriter(frame) if found is None else found

    ClassicFrame.writeStream = property(ask)  # type: ignore[method-assign,assignment]


class ExplainedQuery(StreamingQuery):
    """Spark's own query, whose ``explain`` begins with why it is Spark's: the ``reason``."""

    def __init__(self, query: StreamingQuery, reason: str) -> None:
        super().__init__(query._jsq)
        self.reason = reason

    def explain(self, extended: bool = False) -> None:
        print(f"On Spark, and not on Tailrace: {self.reason}")
        super().explain(extended)


def _frame(spark: SparkSession, plan: Any) -> DataFrame:
    session: Any = spark._jsparkSession
    return DataFrame(_class(f"{_CLASSIC}.Dataset").ofRows(session, plan), spark)


def _catalyst(name: str) -> Any:
    return _class(f"org.apache.spark.sql.catalyst.{name}")


def _class(name: str) -> Any:
    vm: Any = SparkContext._jvm
    return _class_in(vm, name)


@lru_cache(maxsize=64)
def _class_in(vm: Any, name: str) -> Any:
    """A class by its full name. Finding it costs a call to the JVM for each part of the name."""
    found = vm
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _seq(items: Sequence[Any]) -> Any:
    vm: Any = SparkContext._jvm
    return vm.PythonUtils.toSeq(list(items))
