"""Spark's aggregate functions, as Tailrace has them: those whose answers are Spark's own for all arguments they take.

A module of tests compares each of them with Spark's. What Spark leaves open (which of several rows with the largest
order ``max_by`` takes, in which order ``collect_list`` gives its values) Tailrace decides as its own function says.
Sketches are not here: Tailrace's are others, so that answers differ within their error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from tailrace.api.aggregates import Aggregate
from tailrace.errors import AnalysisError
from tailrace.operators.aggregate import functions as ours
from tailrace.operators.aggregate.functions.chosen_by import chosen_by
from tailrace.spark.expressions.catalyst import Expression
from tailrace.spark.expressions.columns import Columns
from tailrace.spark.expressions.plans import AggregateCall
from tailrace.types import DataType


@dataclass(frozen=True)
class Call:
    """An aggregate function with the columns of its arguments."""

    call: AggregateCall
    columns: Columns

    @property
    def arguments(self) -> list[Expression]:
        return self.call.function.children

    @property
    def text(self) -> str:
        """As a user may have written it."""
        function = self.call.function.text
        shown = function.replace("(", "(DISTINCT ", 1) if self.call.distinct else function
        return shown if self.call.condition is None else f"{shown} FILTER (WHERE {self.call.condition.text})"

    def column(self, number: int = 0) -> str:
        """The name of an argument's column: null where the call's filter leaves a row out."""
        argument = self.arguments[number]
        if self.call.condition is None:
            return self.columns.take(argument)
        made = F.when(self._where(), argument.column())
        self.columns.check(argument)
        return self.columns.make(made, f"{argument.text} where {self.call.condition.text}")

    def orders(self, number: int) -> tuple[list[str], bool]:
        """The columns by which an argument's values are in order, and whether those count whose first one is null.

        A struct is compared by its fields, the first one first.
        """
        argument = self.arguments[number]
        if not argument.type_name.startswith("struct<"):
            return [self.column(number)], False
        names = [] if self.call.condition is None and not argument.nullable else [self._presence(argument)]
        return [*names, *(self.columns.take(part) for part in self._leaves(argument))], not names

    def _presence(self, struct: Expression) -> str:
        """The name of a column that is true where a struct is there and the call's filter holds, and else null."""
        there = struct.column().isNotNull()
        self.columns.check(struct)
        made = F.when(there if self.call.condition is None else there & self._where(), True)
        return self.columns.make(made, f"{struct.text} is there")

    def _leaves(self, struct: Expression) -> Iterator[Expression]:
        for field in struct.fields:
            if field.type_name.startswith("struct<") and not field.nullable:
                yield from self._leaves(field)
            elif DataType(field.type_name).kind is None:
                raise self.refuse(f"its order has {field.text}, of {field.type_name}, by which Tailrace does not sort")
            else:
                yield field

    def rows_where(self, *conditions: Column) -> str:
        """The name of a column that is true where all conditions hold and the call's filter does."""
        all_of = [*conditions, *([] if self.call.condition is None else [self._where()])]
        made = all_of[0]
        for each in all_of[1:]:
            made = made & each
        for argument in self.arguments:
            self.columns.check(argument)
        return self.columns.make(made, f"rows of {self.text}")

    def refuse(self, why: str) -> AnalysisError:
        return AnalysisError(f"{self.text}: {why}")

    def check_flag(self, wanted: str, *path: str) -> None:
        """Refuse a variant of the function. Versions of Spark that do not have the flag have no variant."""
        found = self.call.function.flag(*path)
        if found not in (None, wanted):
            raise self.refuse(f"Tailrace has the function with {path[-1]} {wanted} alone, and here it is {found}")

    def _where(self) -> Column:
        assert self.call.condition is not None
        self.columns.check(self.call.condition)
        return self.call.condition.column()


Make = Callable[[Call], Aggregate]
_FLOATS = re.compile(r"\b(float|double)\b")


def aggregate_of(call: AggregateCall, columns: Columns) -> Aggregate:
    """Tailrace's aggregate; it refuses what it has no equal of."""
    asked = Call(call, columns)
    kind = call.function.kind
    if kind in _WHY_NOT:
        raise asked.refuse(_WHY_NOT[kind])
    make = (DISTINCT if call.distinct else PLAIN).get(kind)
    if make is None:
        raise asked.refuse(f"Tailrace has no aggregate function that is equal to Spark's {asked.call.function.kind}")
    return make(asked)


def eval_mode(call: AggregateCall) -> str | None:
    """How a function treats sums that do not fit: ``ansi``, ``legacy`` or ``try``; None: it adds nothing."""
    return call.function.flag("evalContext", "evalMode") or call.function.flag("evalMode")


def ansi_of(calls: Iterable[AggregateCall], default: bool) -> bool:
    """Whether sums that do not fit are errors. Fixed when the user's query was written, for each sum."""
    modes = {mode for call in calls if (mode := eval_mode(call)) is not None}
    if len(modes) > 1:
        raise AnalysisError(
            "some sums were written with spark.sql.ansi.enabled and some without, and an aggregation has one rule for "
            "sums that do not fit"
        )
    return modes.pop() == "ansi" if modes else default


def _count(call: Call) -> Aggregate:
    arguments = call.arguments
    if all(each.kind == "Literal" and each.constant() is not None for each in arguments):
        return ours.count() if call.call.condition is None else ours.count_if(call.rows_where())
    if len(arguments) == 1 and _is_kept(arguments[0]):
        return ours.count(call.column())
    # Whether a value is there is all that counts: no more of it is sent.
    return ours.count_if(call.rows_where(*(each.column().isNotNull() for each in arguments)))


def _is_kept(argument: Expression) -> bool:
    return DataType(argument.type_name).kind is not None


def _count_distinct(call: Call) -> Aggregate:
    first, *others = range(len(call.arguments))
    for number in others:
        call.columns.check(call.arguments[number])
    return ours.count_distinct(call.column(first), *(call.columns.take(call.arguments[number]) for number in others))


def _sum(make: Callable[[str], Aggregate]) -> Make:
    def made(call: Call) -> Aggregate:
        if eval_mode(call.call) == "try":
            raise call.refuse("Tailrace has no function that gives null for a sum that does not fit")
        return make(call.column())

    return made


def _spread(make: Callable[[str], Aggregate]) -> Make:
    def made(call: Call) -> Aggregate:
        call.check_flag("true", "nullOnDivideByZero")
        return make(call.column())

    return made


def _plain(make: Callable[[str], Aggregate]) -> Make:
    return lambda call: make(call.column())


def _by(*, greatest: bool) -> Make:
    """Rows whose order is null are left out: so are those that the filter leaves out."""

    def made(call: Call) -> Aggregate:
        orders, every = call.orders(1)
        k = call.arguments[2].constant() if len(call.arguments) > 2 else None
        value = call.columns.take(call.arguments[0])
        return chosen_by(value, orders, greatest=greatest, every=every, k=k)

    return made


def _extreme(make: Callable[[str], Aggregate], *, greatest: bool) -> Make:
    """Of structs, the one whose fields are the extreme ones."""

    def made(call: Call) -> Aggregate:
        (argument,) = call.arguments
        if argument.type_name.startswith(("array<", "map<")):
            raise call.refuse(f"Tailrace has no order of values that are {argument.type_name}")
        if not argument.type_name.startswith("struct<"):
            return make(call.column())
        orders, every = call.orders(0)
        return chosen_by(call.columns.take(argument), orders, greatest=greatest, every=every)

    return made


def _several_by(call: Call) -> Aggregate:
    return _by(greatest=call.call.function.flag("prettyName") == "max_by")(call)


def _collect(make: Callable[[str], Aggregate], floats: bool) -> Make:
    def made(call: Call) -> Aggregate:
        call.check_flag("true", "ignoreNulls")
        if not floats and _FLOATS.search(call.arguments[0].type_name):
            raise call.refuse("Spark takes 0.0 and -0.0 for two values here, and Tailrace for one")
        return make(call.column())

    return made


def _percentile(call: Call) -> Aggregate:
    call.check_flag("false", "reverse")
    share, frequency = (each.constant() for each in call.arguments[1:3])
    if not isinstance(share, float) or frequency != 1:
        raise call.refuse("Tailrace has percentiles of one constant share, of rows that count once")
    return ours.quantile(call.column(), share)


PLAIN: dict[str, Make] = {
    "Count": _count,
    "CountIf": _plain(ours.count_if),
    "Sum": _sum(ours.sum),
    "Average": _sum(ours.avg),
    "Min": _extreme(ours.min, greatest=False),
    "Max": _extreme(ours.max, greatest=True),
    "BoolAnd": _plain(ours.bool_and),
    "BoolOr": _plain(ours.bool_or),
    "StddevSamp": _spread(ours.stddev_samp),
    "StddevPop": _spread(ours.stddev_pop),
    "VarianceSamp": _spread(ours.var_samp),
    "VariancePop": _spread(ours.var_pop),
    "MinBy": _by(greatest=False),
    "MaxBy": _by(greatest=True),
    "MaxMinByK": _several_by,
    "CollectSet": _collect(ours.collect_set, floats=False),
    "CollectList": _collect(ours.collect_list, floats=True),
    "Percentile": _percentile,
    "Median": _plain(ours.median),
}
DISTINCT: dict[str, Make] = {
    "Count": _count_distinct,
    "Sum": _sum(ours.sum_distinct),
    # These do not see how often a value comes.
    **{kind: PLAIN[kind] for kind in ("Min", "Max", "BoolAnd", "BoolOr", "CollectSet")},
}
_WHY_NOT = {
    **dict.fromkeys(
        ("First", "Last", "AnyValue"),
        "it depends on the order in which rows come, which a replay may change: use min_by or max_by with the event "
        "time, which Tailrace has too",
    ),
    **dict.fromkeys(
        ("HyperLogLogPlusPlus", "ApproximatePercentile"),
        "Tailrace's sketch is another one, whose answers differ from Spark's within the error: write the query with "
        "tailrace.stream(...) to use it",
    ),
}
