"""Columns that Spark makes of a stream's, below an operator.

Spark itself analyses a user's expressions over the stream's columns, so that names, types and what a function means are
Spark's own. Of a user's stream the columns are made in the streaming plan, of an operator's rows by a hop. Where all
that is wanted are columns as they are, nothing is put between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession

from tailrace.api.columns import Named, resolve, shown_call
from tailrace.api.relations import Relation
from tailrace.errors import AnalysisError
from tailrace.spark.expressions.catalyst import Expression
from tailrace.spark.expressions.columns import Columns, Texts
from tailrace.spark.expressions.lineage import between
from tailrace.spark.expressions.plans import Above, Leaf, Node, Template, plan_of
from tailrace.spark.sources.hops import hop_over, no_rows_of
from tailrace.spark.sources.schema import fields_of, quoted
from tailrace.spark.sources.transforms import Transformed, frame_of, then
from tailrace.types import Field

_NAME_MAX = 80


class StreamColumns:
    """What is taken of a stream. ``call``: the user's, for errors."""

    def __init__(self, spark: SparkSession, source: object, schema: Sequence[Field], call: str) -> None:
        self._spark = spark
        self._source = source
        self._call = call
        self._used: set[str] = set()
        self._plan: Node | None = None
        self.schema = tuple(schema)
        self.frame = no_rows_of(spark, source) if isinstance(source, Relation) else frame_of(source)
        self._places = list(range(len(self.schema)))
        if isinstance(source, Relation):  # of whose columns the stream may have some alone
            self._places = [self.frame.columns.index(field.name) for field in schema]
            self.frame = self.frame.select(*(quoted(field.name) for field in schema))
        self._rows = plan_of(self.frame)
        self.own = self._rows.output
        self.taken = Columns(Texts(), self._name, None)

    def analysed(self, make: Callable[[DataFrame], DataFrame]) -> DataFrame:
        try:
            return make(self.frame)
        except PySparkException as error:
            raise AnalysisError(f"{self._call}: {str(error).splitlines()[0]}") from error

    def column(self, name: str) -> Expression:
        """One of the stream's, by its name."""
        return self.own[self.schema.index(resolve(name, self.schema, self._call))]

    def owned(self, expression: Expression) -> str | None:
        """The name of the stream's column that an expression is."""
        if not expression.is_attribute:
            return None
        return next((field.name for field, own in self._fields() if own.id == expression.id), None)

    def take(self, name: str) -> str:
        """The name here of one of the stream's columns."""
        return self.taken.take(self.column(name))

    def put(self, expression: Expression, name: str) -> None:
        """A column of this name, which no other has."""
        self._used.add(name.lower())
        self.taken.put(expression, name)

    def put_others(self) -> None:
        """The stream's other columns, but for those whose names are taken."""
        for field, own in self._fields():
            if field.name.lower() not in self._used:
                self.put(own, field.name)

    def without(self, gone: tuple[int, str] | None) -> None:
        """From here on, one column of the analysed plan is not there any more where others are made."""
        self.taken = Columns(Texts(), self._name, gone)

    def made_over(self, plan: Node) -> None:
        """What was taken is made of the columns of this plan, which Spark has put over the stream's rows."""
        self._plan = plan

    def between(self) -> list[Node]:
        """What Spark has put over the stream's rows, from the lowest node on."""
        return [] if self._plan is None else between(self._plan, self._rows)

    def source(self) -> tuple[object, tuple[Field, ...]]:
        """The stream with the columns that were taken, and their types."""
        computed = [name for name, each in self.taken.taken if each is None or self.owned(each) != name]
        if not computed:
            return self._source, self.schema
        step = self._step()
        if isinstance(self._source, Relation):
            hop = hop_over(self._spark, [self._source], step, shown_call(self._call, computed))
            return hop, hop.fields
        made = then(self._source, step) if isinstance(self._source, Transformed) else step(self.frame)
        return made, fields_of(frame_of(made).schema)

    def _step(self) -> Callable[[DataFrame], DataFrame]:
        nodes, first = self.between(), self.frame
        place: Above | Leaf = Leaf(list(zip(self.own, self._places, strict=True)), None)
        for node in nodes:
            place = Above(node, {0: place})
        template = Template(place)
        if nodes and self._plan is not None:
            first = self._plan.frame(self._spark)
        return lambda rows: self.taken.of(first if rows is self.frame else template.over(rows))

    def _fields(self) -> list[tuple[Field, Expression]]:
        return list(zip(self.schema, self.own, strict=True))

    def _name(self, _: int, text: str) -> str:
        """A name that no other column has."""
        name = base = text.replace("`", "")[:_NAME_MAX]
        number = 1
        while name.lower() in self._used:
            name, number = f"{base} {number}", number + 1
        self._used.add(name.lower())
        return name


def with_columns(
    spark: SparkSession, source: object, schema: Sequence[Field], given: Sequence[object], call: str, *, beside: bool
) -> tuple[object, tuple[Field, ...], tuple[Named, ...]]:
    """The stream with a column for each Column that is not one of its own already, and what they are called."""
    stream = StreamColumns(spark, source, schema, call)
    made = stream.analysed(lambda frame: frame.select(*(each for each in given if isinstance(each, Column))))
    plan = plan_of(made)
    stream.made_over(plan.child)
    found = [_ordered(each, name, call) for each, name in zip(plan.expressions, made.columns, strict=True)]
    named: list[Named] = []
    computed: list[tuple[Expression, str]] = []
    names = {field.name.lower() for field in schema} if beside else set()
    for expression, name, ascending in found:
        own = stream.owned(expression)
        if own is not None and own.lower() == name.lower():
            named.append(Named(own, False, ascending))
            continue
        name = next(each for each in (name, *(f"{name} {n}" for n in range(1, 99))) if each.lower() not in names)
        if beside:
            names.add(name.lower())
        computed.append((expression, name))
        named.append(Named(name, True, ascending))
    replaced = {name.lower(): (expression, name) for expression, name in computed}
    for field, own_column in zip(schema, stream.own, strict=True):
        stream.put(*replaced.pop(field.name.lower(), (own_column, field.name)))
    for expression, name in replaced.values():
        stream.put(expression, name)
    return (*stream.source(), tuple(named))


def _ordered(expression: Expression, name: str, call: str) -> tuple[Expression, str, bool | None]:
    """A column, its name, and whether smaller is better, where it says so as ``F.desc`` does."""
    inner = expression.unaliased
    if inner.kind != "SortOrder":
        return inner, name, None
    ascending = inner.flag("direction") == "ascending"
    if (inner.flag("nullOrdering") == "nullsfirst") is not ascending:
        raise AnalysisError(f"{call}: {inner.text} puts null elsewhere: null is the smallest value here, as by default")
    only = inner.children[0]
    return only, only.name if only.is_attribute else only.text, ascending
