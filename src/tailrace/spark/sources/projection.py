"""Groups and aggregates of a stream's own API, with expressions of PySpark's: over columns that Spark makes below.

All that is Spark's of what was asked for is analysed as one aggregation of Spark's over the stream's columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tailrace.api.aggregates import Aggregate
from tailrace.api.columns import resolve
from tailrace.api.relations import Relation
from tailrace.api.runtime import Projected
from tailrace.api.windows import AnyWindow, CountWindow, DynamicSessionWindow, Window
from tailrace.errors import AnalysisError
from tailrace.spark.expressions.catalyst import Expression
from tailrace.spark.expressions.functions import aggregate_of, ansi_of
from tailrace.spark.expressions.plans import AggregateCall, plan_of
from tailrace.spark.expressions.windows import take_window
from tailrace.spark.sources.computed import StreamColumns
from tailrace.spark.sources.finish import Finish
from tailrace.spark.sources.schema import quoted
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
        self._asked = asked
        self._session_ansi = session_ansi
        self._stream = stream = StreamColumns(spark, asked.source, asked.schema, asked.call)
        groups = [self._spark_group(each) for each in asked.groups if not isinstance(each, AnyWindow)]
        wanted = [each for each in asked.aggregates if isinstance(each, Column)]
        made = stream.analysed(lambda frame: frame.groupBy(*groups).agg(*wanted or [F.count(F.lit(1))]))
        plan = plan_of(made)
        self._parts = plan.aggregated()
        stream.made_over(plan.child)
        stream.without(self._gone())
        named = made if len(made.columns) > len(wanted or [1]) else stream.analysed(lambda frame: frame.select(*groups))
        self._key_names = named.columns[: len(groups)]  # a setting of Spark's leaves groups out of an aggregation
        self._results = self._parts.results[len(self._parts.results) - len(wanted) :] if wanted else []
        self._below = plan.child
        self._parts_named: dict[int, tuple[Expression, str]] = {}  # aggregates that a column is made of

    def made(self, *, whole: bool) -> Projected:
        asked = self._asked
        keys = self._put_keys()  # before all columns that may have any name
        if whole:
            self._stream.put_others()
        groups = [self._group(group) if key is None else self._group_of(*key) for group, key in keys]
        time = None if asked.time is None else self._stream.take(asked.time)
        aggregates, finish = self._aggregates(groups)
        source, schema = self._stream.source()
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
        brought = self._stream.owned(key.unaliased) is not None
        return bool(key.window_kind) and key.type_name.startswith("struct<") and not brought

    def _put_keys(self) -> list[tuple[object, tuple[Expression, str] | None]]:
        """The groups, each with Spark's key and its name where it is none of Tailrace's windows."""
        keys = iter(zip(self._parts.keys, self._key_names, strict=True))
        given = [(each, None if isinstance(each, AnyWindow) else next(keys)) for each in self._asked.groups]
        for _, key in given:
            if key is not None and not self._is_window(key[0]):
                self._stream.put(key[0].unaliased, key[1])
        return given

    def _group_of(self, key: Expression, name: str) -> str | AnyWindow:
        if not self._is_window(key):
            return quoted(name)
        if not key.unaliased.is_attribute:
            raise AnalysisError(f"groupBy({key.text}): group by a window as it is, and not by a part of it")
        taken = take_window(self._below, key.unaliased)
        self._stream.made_over(taken.plan)
        if self._is_last_moment(taken.time):
            assert isinstance(taken.window, Window) and self._asked.window is not None
            return replace(taken.window, time_column=self._stream.take(self._asked.window), name=name)
        return taken.named(self._stream.taken.take, name)

    def _is_last_moment(self, time: Expression) -> bool:
        """Whether it is that of the window that rows come with, which Spark computes below the aggregation."""
        made = {each.id: each for node in self._stream.between() for each in node.expressions if each.kind == "Alias"}
        if self._asked.window is None or not time.is_attribute or time.id not in made:
            return False
        return made[time.id].references == {self._stream.column(self._asked.window).id}

    def _group(self, window: object) -> AnyWindow:
        """A window of Tailrace's, over columns as they are named here."""
        assert isinstance(window, AnyWindow)
        stream = self._stream
        if isinstance(window, CountWindow):
            return window
        if isinstance(window, DynamicSessionWindow):
            return replace(window, time_column=stream.take(window.time_column), ends=stream.take(window.ends))
        if not isinstance(window.time, Column):
            return replace(window, time_column=stream.take(window.time_column))
        return replace(window, time_column=stream.taken.take(self._expression(window.time)), time=None)

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
        keys = zip((key.attribute for key in self._parts.keys), self._key_names, strict=True)
        return made, Finish([*keys, *self._parts_named.values()], shown, len(groups))

    def _aggregate(self, asked: object, result: Expression | None) -> list[Aggregate]:
        """What the operator has to give for one column, and does not give yet. ``result``: where it is Spark's."""
        if result is None:
            assert isinstance(asked, Aggregate)
            return [self._of_tailrace(asked)]
        alone = self._call_of(result)
        if alone is not None:
            return [aggregate_of(alone, self._stream.taken).alias(result.name)]
        made: list[Aggregate] = []
        for call in self._parts.calls:
            if call.result.id in result.references and call.result.id not in self._parts_named:
                name = f"part {len(self._parts_named) + 1}: {call.function.text}"[:_NAME_MAX]
                made.append(aggregate_of(call, self._stream.taken).alias(name))
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
                columns.append(self._stream.take(field.name))
                shown.append(field.name)
            else:
                assert isinstance(column, Column)
                columns.append(self._stream.taken.take(self._expression(column)))
                shown.append(self._name_of(column))
        name = replace(aggregate, columns=tuple(shown)).name
        return replace(aggregate, columns=tuple(columns)).alias(name)

    def _expression(self, column: Column) -> Expression:
        """A column that is computed row by row."""
        (made,) = plan_of(self._stream.analysed(lambda frame: frame.select(column))).expressions
        return made.unaliased

    def _name_of(self, column: Column) -> str:
        return self._stream.analysed(lambda frame: frame.select(column)).columns[0]
