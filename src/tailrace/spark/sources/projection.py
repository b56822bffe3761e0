"""A stream's own API with expressions of PySpark's: they become columns below the operator, which Spark makes.

Spark itself analyses them over the stream's columns, so that names, types and what a function means are Spark's own.
Of a user's stream the columns are made in the streaming plan, of an operator's rows by a hop. Where all that was asked
for are columns as they are, nothing is put between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.api.aggregates import Aggregate
from tailrace.api.columns import resolve, shown_call
from tailrace.api.relations import Relation
from tailrace.api.runtime import Projected
from tailrace.api.windows import AnyWindow, CountWindow, DynamicSessionWindow, Window
from tailrace.errors import AnalysisError
from tailrace.spark.expressions.catalyst import Expression
from tailrace.spark.expressions.columns import Columns, Texts
from tailrace.spark.expressions.functions import aggregate_of, ansi_of
from tailrace.spark.expressions.plans import Above, AggregateCall, Leaf, Node, Template, plan_of
from tailrace.spark.expressions.windows import take_window
from tailrace.spark.sources.finish import Finish
from tailrace.spark.sources.hops import hop_over, no_rows_of
from tailrace.spark.sources.schema import fields_of, quoted
from tailrace.spark.sources.transforms import Transformed, frame_of, then
from tailrace.types import Field

_NAME_MAX = 80


@dataclass(frozen=True)
class Asked:
    """What a user asks of a stream. ``schema``: its columns. ``time``: that of its watermark."""

    source: object
    schema: Sequence[Field]
    time: str | None
    groups: Sequence[object]
    aggregates: Sequence[object]

    @property
    def window(self) -> str | None:
        """The column with the window that rows come with."""
        window = self.source.window if isinstance(self.source, Relation) else None
        return None if window is None or isinstance(window, CountWindow) else window.name

    @property
    def call(self) -> str:
        return "agg" if self.aggregates else "groupBy"


class Projection:
    """One analysis of what was asked. ``session_ansi``: what the session says of sums that do not fit."""

    def __init__(self, spark: SparkSession, asked: Asked, session_ansi: bool) -> None:
        self._spark = spark
        self._asked = asked
        self._session_ansi = session_ansi
        self._frame = _rows_of(spark, asked.source)
        self._own_plan = plan_of(self._frame)
        self._own = self._own_plan.output
        self._used: set[str] = set()
        groups = [self._spark_group(each) for each in asked.groups if not isinstance(each, AnyWindow)]
        wanted = [each for each in asked.aggregates if isinstance(each, Column)]
        made = _analysed(asked.call, lambda: self._frame.groupBy(*groups).agg(*wanted or [F.count(F.lit(1))]))
        plan = plan_of(made)
        self._parts, self._below = plan.aggregated(), plan.child
        self._group_names = made.columns[: len(groups)] if len(made.columns) > len(wanted or [1]) else []
        self._results = self._parts.results[len(self._parts.results) - len(wanted) :] if wanted else []
        self._columns = Columns(Texts(), self._name, self._gone())
        self._parts_named: dict[int, tuple[Expression, str]] = {}  # aggregates that a column is made of

    def made(self, *, whole: bool) -> Projected:
        asked = self._asked
        keys = self._put_keys()  # before all columns that may have any name
        if whole:
            for field, own in zip(asked.schema, self._own, strict=True):
                if field.name.lower() not in self._used:
                    self._put(own, field.name)
        groups = [self._group(group) if key is None else self._group_of(*key) for group, key in keys]
        time = None if asked.time is None else self._take(asked.time)
        aggregates, finish = self._aggregates(groups)
        source, schema = self._source()
        ansi = ansi_of(self._parts.calls, self._session_ansi)
        behind = None if finish is None else (finish, finish.label)
        return Projected(source, schema, time, tuple(groups), tuple(aggregates), ansi, behind)

    # Groups.

    def _spark_group(self, group: object) -> Column:
        if isinstance(group, Column):
            return group
        return F.col(quoted(resolve(group, self._asked.schema, "groupBy").name))

    def _gone(self) -> tuple[int, str] | None:
        """The column of a window of Spark's, which the operator makes."""
        made = next((key for key in self._parts.keys if self._is_window(key)), None)
        return None if made is None else (made.unaliased.id, f"the {made.window_kind}")

    def _is_window(self, key: Expression) -> bool:
        """Whether it is a window that is to be made, and not one that rows come with."""
        brought = any(own.id == key.unaliased.id for own in self._own) if key.unaliased.is_attribute else False
        return bool(key.window_kind) and key.type_name.startswith("struct<") and not brought

    def _put_keys(self) -> list[tuple[object, tuple[Expression, str] | None]]:
        """The groups, each with Spark's key and its name where it is none of Tailrace's windows."""
        keys = iter(zip(self._parts.keys, self._names_of_keys(), strict=True))
        given = [(each, None if isinstance(each, AnyWindow) else next(keys)) for each in self._asked.groups]
        for _, key in given:
            if key is not None and not self._is_window(key[0]):
                self._put(key[0].unaliased, key[1])
        return given

    def _names_of_keys(self) -> list[str]:
        if self._group_names:
            return self._group_names
        return [key.name if key.kind == "Alias" else key.unaliased.text for key in self._parts.keys]

    def _group_of(self, key: Expression, name: str) -> str | AnyWindow:
        if not self._is_window(key):
            return quoted(name)
        if not key.unaliased.is_attribute:
            raise AnalysisError(f"groupBy({key.text}): group by a window as it is, and not by a part of it")
        taken = take_window(self._below, key.unaliased)
        self._below = taken.plan
        if self._is_last_moment(taken.time):
            assert isinstance(taken.window, Window) and self._asked.window is not None
            return replace(taken.window, time_column=self._take(self._asked.window), name=name)
        return taken.named(self._columns.take, name)

    def _is_last_moment(self, time: Expression) -> bool:
        """Whether it is that of the window that rows come with, which Spark computes below the aggregation."""
        made = {each.id: each for node in self._between() for each in node.expressions if each.kind == "Alias"}
        if self._asked.window is None or not time.is_attribute or time.id not in made:
            return False
        return made[time.id].references == {self._column(self._asked.window).id}

    def _group(self, window: object) -> AnyWindow:
        """A window of Tailrace's, over columns as they are named here."""
        assert isinstance(window, AnyWindow)
        if isinstance(window, CountWindow):
            return window
        window = replace(window, time_column=self._take(window.time_column))
        return replace(window, ends=self._take(window.ends)) if isinstance(window, DynamicSessionWindow) else window

    # Aggregates.

    def _aggregates(self, groups: Sequence[object]) -> tuple[list[Aggregate], Finish | None]:
        """The operator's, and what is made of them; None: they are all that was asked for."""
        results = iter(self._results)
        made: list[Aggregate] = []
        shown: list[Expression | str] = []
        for number, asked in enumerate(self._asked.aggregates, 1):
            result = None if isinstance(asked, Aggregate) else next(results)
            try:
                new = self._aggregate(asked, result)
            except AnalysisError as error:
                named = "" if result is None else f" {result.name!r}"
                raise AnalysisError(f"agg, argument {number}{named}: {error}") from error
            alone = result is None or self._call_of(result) is not None
            made += new
            shown.append(new[0].name if alone or result is None else result)
        if not any(isinstance(each, Expression) for each in shown):
            return made, None
        keys = zip((key.attribute for key in self._parts.keys), self._names_of_keys(), strict=True)
        return made, Finish([*keys, *self._parts_named.values()], shown, len(groups))

    def _aggregate(self, asked: object, result: Expression | None) -> list[Aggregate]:
        """What the operator has to give for one column, and does not give yet. ``result``: where it is Spark's."""
        if result is None:
            assert isinstance(asked, Aggregate)
            return [self._of_tailrace(asked)]
        alone = self._call_of(result)
        if alone is not None:
            return [aggregate_of(alone, self._columns).alias(result.name)]
        made: list[Aggregate] = []
        for call in self._parts.calls:
            if call.result.id in result.references and call.result.id not in self._parts_named:
                name = f"part {len(self._parts_named) + 1} of the columns"
                made.append(aggregate_of(call, self._columns).alias(name))
                self._parts_named[call.result.id] = call.result, name
        return made

    def _call_of(self, result: Expression) -> AggregateCall | None:
        """The aggregate that a column is, where it is nothing more."""
        inner = result.unaliased
        found = (call for call in self._parts.calls if inner.is_attribute and inner.id == call.result.id)
        return next(found, None)

    def _of_tailrace(self, aggregate: Aggregate) -> Aggregate:
        """One of Tailrace's aggregates over columns as they are named here, with the name that it has for the user."""
        columns, shown = [], []
        for column in aggregate.columns:
            if isinstance(column, str):
                field = resolve(column, self._asked.schema, aggregate.name)
                columns.append(self._take(field.name))
                shown.append(field.name)
            else:
                assert isinstance(column, Column)
                expression, name = self._expression(column)
                columns.append(self._columns.take(expression))
                shown.append(name)
        name = replace(aggregate, columns=tuple(shown)).name
        return replace(aggregate, columns=tuple(columns)).alias(name)

    # Columns.

    def _expression(self, column: Column) -> tuple[Expression, str]:
        """A column that is computed row by row, and Spark's name of it."""
        frame = _analysed("agg", lambda: self._frame.select(column))
        (made,) = plan_of(frame).expressions
        return made.unaliased, frame.columns[0]

    def _take(self, name: str) -> str:
        """The name here of one of the stream's columns."""
        return self._columns.take(self._column(name))

    def _column(self, name: str) -> Expression:
        field = resolve(name, self._asked.schema, self._asked.call)
        return self._own[list(self._asked.schema).index(field)]

    def _put(self, expression: Expression, name: str) -> None:
        self._used.add(name.lower())
        self._columns.put(expression, name)

    def _name(self, _: int, text: str) -> str:
        """A name that no other column has."""
        name = base = text.replace("`", "")[:_NAME_MAX]
        number = 1
        while name.lower() in self._used:
            name, number = f"{base} {number}", number + 1
        self._used.add(name.lower())
        return name

    def _between(self) -> list[Node]:
        """What Spark has put between the stream and the aggregation, from the lowest node on."""
        nodes = _chain(self._below)
        return nodes[: len(nodes) - len(_chain(self._own_plan))][::-1]

    def _source(self) -> tuple[object, tuple[Field, ...]]:
        """The stream with the columns that were taken, and their types."""
        asked, columns = self._asked, self._columns
        own = {each.id: field.name for each, field in zip(self._own, asked.schema, strict=True)}
        computed = [
            name for name, each in columns.taken if each is None or not each.is_attribute or own.get(each.id) != name
        ]
        if not computed:
            return asked.source, tuple(asked.schema)
        first = self._below.frame(self._spark)
        place: Above | Leaf = Leaf([(each, number) for number, each in enumerate(self._own)], None)
        for node in self._between():
            place = Above(node, {0: place})
        template = Template(place)

        def step(frame: DataFrame) -> DataFrame:
            return columns.of(first if frame is self._frame else template.over(frame))

        if isinstance(asked.source, Relation):
            hop = hop_over(self._spark, [asked.source], step, shown_call(asked.call, computed))
            return hop, hop.fields
        source = then(asked.source, step) if isinstance(asked.source, Transformed) else step(self._frame)
        return source, fields_of(frame_of(source).schema)


def _rows_of(spark: SparkSession, source: object) -> DataFrame:
    """A DataFrame with a stream's columns, of which Spark can say what expressions mean."""
    if isinstance(source, Relation):
        return no_rows_of(spark, source)
    return frame_of(source)


def _chain(plan: Node) -> list[Node]:
    """A node and what lies below it, always the first child."""
    return [plan, *_chain(plan.children[0])] if plan.children else [plan]


def _analysed(call: str, make: Callable[[], DataFrame]) -> DataFrame:
    try:
        return make()
    except PySparkException as error:
        raise AnalysisError(f"{call}: {str(error).splitlines()[0]}") from error
