"""Expressions of analysed logical plans, and what ``plans`` needs of the JVM for their nodes.

Only these two modules and ``private`` touch Spark's classes in the JVM. None of this is promised by Spark, so any
release may change it: each use is a small method inside ``private.changed``, which says what is gone, and
``tests/spark/expressions/test_catalyst.py`` runs them on a live session.

Columns are told apart by the ids of expressions: names may come twice. An id means the same column in all of one plan,
and lives as long as the session: another analysis of the same query has other ids.

Threads: the caller's. Each access is a call to the JVM, so that readers keep what they need twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
_LINE_SHOWN = 80
_DELAY = "spark.watermarkDelayMs"
_WINDOW_MARKS = {"spark.timeWindow": "window", "spark.sessionWindow": "session_window"}


def uses(what: str) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Names what a method needs of Spark, for the error where Spark has it no more."""

    def around(method: Callable[_P, _T]) -> Callable[_P, _T]:
        @wraps(method)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            with changed(what):
                return method(*args, **kwargs)

        return call

    return around


def items_of(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]


def place_of(java: Any) -> str:
    """Of an expression or a node: a file and a line of a Python program, or a line of SQL text.

    PySpark knows the former of what the methods of Columns make.
    """
    origin = java.origin()
    called, text, line = origin.pysparkErrorContext(), origin.sqlText(), origin.line()
    if called.isDefined() and called.get()._2():
        return str(called.get()._2()).splitlines()[0]
    if not text.isDefined() or not line.isDefined():
        return ""
    lines = str(text.get()).splitlines()
    said = lines[line.get() - 1].strip()[:_LINE_SHOWN]
    return f"line {line.get()} of the SQL text: {said}" if len(lines) > 1 else f"SQL text {said}"


class Expression:
    """An expression of an analysed plan."""

    def __init__(self, java: Any) -> None:
        self._java = java

    @cached_property
    @uses("TreeNode.nodeName()")
    def kind(self) -> str:
        """The name of its class: ``Alias``, ``AttributeReference``, ``Sum``."""
        return str(self._java.getClass().getSimpleName())

    @cached_property
    @uses("Expression.sql()")
    def text(self) -> str:
        """As a user may have written it."""
        return str(self._java.sql())

    @cached_property
    @uses("TreeNode.children()")
    def children(self) -> list[Expression]:
        return [Expression(each) for each in items_of(self._java.children())]

    @cached_property
    @uses("NamedExpression.exprId()")
    def id(self) -> int:
        """Of a named expression."""
        return int(self._java.exprId().id())

    @cached_property
    @uses("NamedExpression.name()")
    def name(self) -> str:
        """Of a named expression."""
        return str(self._java.name())

    @cached_property
    @uses("Expression.dataType()")
    def type_name(self) -> str:
        return str(self._java.dataType().simpleString())

    @cached_property
    @uses("Expression.nullable()")
    def nullable(self) -> bool:
        return bool(self._java.nullable())

    @cached_property
    @uses("Expression.references()")
    def references(self) -> set[int]:
        """The ids of the columns that it reads."""
        return {int(each.exprId().id()) for each in items_of(self._java.references().toSeq())}

    @cached_property
    @uses("Expression.deterministic()")
    def repeatable(self) -> bool:
        """Whether it gives the same whenever it is computed: it is neither random nor the time of day."""
        pattern = catalyst("trees.TreePattern").CURRENT_LIKE()
        return bool(self._java.deterministic()) and not self._java.containsPattern(pattern)

    @cached_property
    @uses("NamedExpression.metadata()")
    def delay_ms(self) -> int | None:
        """Of an event time column, the delay of its watermark."""
        metadata = self._java.metadata()
        return int(metadata.getLong(_DELAY)) if metadata.contains(_DELAY) else None

    @cached_property
    @uses("NamedExpression.metadata()")
    def window_kind(self) -> str:
        """Of a column with windows that Spark has made, the function that makes such; else empty."""
        metadata = self._java.metadata()
        return next((kind for mark, kind in _WINDOW_MARKS.items() if metadata.contains(mark)), "")

    @cached_property
    @uses("TreeNode.origin()")
    def place(self) -> str:
        """Where it is written, or else what it is made of; empty where Spark does not know."""
        known = (place_of(each._java) for each in self.walk() if not each.is_attribute)
        return next(filter(None, known), "")

    @cached_property
    @uses("GetStructField()")
    def fields(self) -> list[Expression]:
        """Of a struct, its fields."""
        none, count = java_class("scala.Option").empty(), self._java.dataType().fields()
        part = catalyst("expressions.GetStructField")
        return [Expression(part(self._java, number, none)) for number in range(len(count))]

    @property
    def is_window(self) -> bool:
        """Whether it is a window's bounds, as Spark has made them."""
        named = self.is_attribute or self.kind == "Alias"
        return named and self.type_name.startswith("struct<") and bool(self.window_kind)

    @property
    def is_attribute(self) -> bool:
        return self.kind == "AttributeReference"

    @property
    def unaliased(self) -> Expression:
        """What an alias names; else the expression itself."""
        return self.children[0] if self.kind == "Alias" else self

    @cached_property
    @uses("NamedExpression.toAttribute()")
    def attribute(self) -> Expression:
        """The column that a named expression makes."""
        return Expression(self._java.toAttribute())

    @uses("Alias()")
    def named_as(self, column: Expression) -> Expression:
        """A column with its values that stands for another one."""
        if self.is_attribute and self.id == column.id:
            return self
        none, empty = java_class("scala.Option").empty(), seq_of([])
        id_ = column._java.exprId()
        return Expression(catalyst("expressions.Alias")(self._java, column.name, id_, empty, none, empty))

    @uses("Expression.eval()")
    def constant(self) -> Any:
        """The value of a constant; None where it is none, or null."""
        return self._java.eval(None) if self._java.foldable() else None

    @uses("Expression.eval()")
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

    @uses("Expression.semanticEquals()")
    def same_as(self, other: Expression) -> bool:
        """Whether both always give the same."""
        return bool(self._java.semanticEquals(other._java))

    @uses("ExpressionUtils.column()")
    def column(self) -> Column:
        """As a PySpark column, for a DataFrame that has the columns that it reads."""
        return ClassicColumn(java_class(f"{_CLASSIC}.ExpressionUtils").column(self._java))


@uses("DataFrame._jdf.queryExecution().analyzed()")
def plan_under(frame: DataFrame) -> Any:
    jdf: Any = frame._jdf
    return jdf.queryExecution().analyzed()


def analysed_plan(frame: DataFrame) -> Any:
    """SQL's common table expressions put where they are used."""
    plan = plan_under(frame)
    if plan.containsPattern(catalyst("trees.TreePattern").CTE()):
        plan = _inline_ctes().apply(plan)
    return plan


def _inline_ctes() -> Any:
    """Spark's rule that does so for every one; what else it can do differs between versions."""
    rule = catalyst("optimizer.InlineCTE")
    try:
        return rule(True, False, False)
    except Py4JJavaError:
        raise
    except Py4JError:
        return rule(True, False)


@uses("SessionState.optimizer()")
def optimized_plan(spark: SparkSession, plan: Any) -> Any:
    session: Any = spark._jsparkSession
    return session.sessionState().optimizer().execute(plan)


def replace_write_stream(writer: Callable[[DataFrame], Any]) -> None:
    """``df.writeStream`` asks ``writer`` from now on; where that gives None it is Spark's own. Idempotent."""

    def ask(frame: DataFrame) -> Any:
        found = writer(frame)
        return DataStreamWriter(frame) if found is None else found

    ClassicFrame.writeStream = property(ask)  # type: ignore[method-assign,assignment]


ON_SPARK = "On Spark, and not on Tailrace"
"""Begins what ``explain`` says of a query that Tailrace does not run."""


class ExplainedQuery(StreamingQuery):
    """Spark's own query, whose ``explain`` begins with why it is Spark's: the ``reason``."""

    def __init__(self, query: StreamingQuery, reason: str) -> None:
        super().__init__(query._jsq)
        self.reason = reason

    def explain(self, extended: bool = False) -> None:
        print(f"{ON_SPARK}: {self.reason}")
        super().explain(extended)


def rows_of_plan(spark: SparkSession, plan: Any) -> DataFrame:
    session: Any = spark._jsparkSession
    return DataFrame(java_class(f"{_CLASSIC}.Dataset").ofRows(session, plan), spark)


def catalyst(name: str) -> Any:
    return java_class(f"org.apache.spark.sql.catalyst.{name}")


def java_class(name: str) -> Any:
    vm: Any = SparkContext._jvm
    return _class_in(vm, name)


@lru_cache(maxsize=64)
def _class_in(vm: Any, name: str) -> Any:
    """A class by its full name. Finding it costs a call to the JVM for each part of the name."""
    found = vm
    for part in name.split("."):
        found = getattr(found, part)
    return found


def seq_of(items: Sequence[Any]) -> Any:
    vm: Any = SparkContext._jvm
    return vm.PythonUtils.toSeq(list(items))
