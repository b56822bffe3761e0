"""The aggregates, named as in ``pyspark.sql.functions``. An :class:`Aggregate` only says what is wanted.

Some functions here hide the builtins of the same name: use none of ``sum``, ``min`` and ``max`` in this module
otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from tailrace.api.columns import check_collation, unquoted
from tailrace.errors import AnalysisError
from tailrace.types import BIGINT, DOUBLE, DataType, Field, array, decimal


class Function(StrEnum):
    """What an aggregate computes, by its name in Spark."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    AVG = "avg"
    FIRST = "first"
    LAST = "last"
    STDDEV = "stddev"
    QUANTILE = "quantile"
    COUNT_DISTINCT = "count_distinct"
    COLLECT_LIST = "collect_list"
    TOP_K = "top_k"


_NUMERIC_ONLY = (Function.SUM, Function.AVG, Function.STDDEV, Function.QUANTILE)
_ORDERED_BY_TIME = (Function.FIRST, Function.LAST, Function.COLLECT_LIST)
_HOLISTIC = (Function.QUANTILE, Function.COUNT_DISTINCT, Function.COLLECT_LIST, Function.TOP_K)


@dataclass(frozen=True)
class Aggregate:
    """One aggregate of one column; ``column`` is ``None`` for a count of rows.

    >>> max("price").name
    'max(price)'
    >>> count().alias("bids").name
    'bids'
    """

    function: Function
    column: str | None
    ignore_nulls: bool = False
    label: str = ""  # how the function is spelled in the default name, where that is not its own name
    alias_name: str | None = None
    argument: float | None = None  # the share of a quantile, the length of a top list

    def alias(self, name: str) -> Aggregate:
        """The same aggregate with another output name."""
        if not isinstance(name, str) or not name:
            raise AnalysisError(f"alias takes a name that is not empty, but got {name!r}: .alias('total')")
        return replace(self, alias_name=name)

    @property
    def name(self) -> str:
        """The name of the output column: the alias, or Spark's default."""
        if self.alias_name is not None:
            return self.alias_name
        if self.function is Function.COUNT_DISTINCT:
            return f"count(DISTINCT {self.column})"
        argument = "" if self.argument is None or self.label else f", {self.argument:g}"
        return f"{self.label or self.function}({self.column or 1}{argument})"

    @property
    def needs_time(self) -> bool:
        """Whether the answer depends on event time."""
        return self.function in _ORDERED_BY_TIME

    @property
    def holistic(self) -> bool:
        """Whether it needs every row of its group, and not only a few values that are merged as rows come."""
        return self.function in _HOLISTIC

    def output_type(self, column: DataType | None) -> DataType:
        """The type of the output, Spark's own, for a column of this type."""
        match self.function:
            case Function.COUNT | Function.COUNT_DISTINCT:
                return BIGINT
            case Function.STDDEV | Function.QUANTILE:
                return DOUBLE
        assert column is not None, f"{self.function} of no column"
        match self.function:
            case Function.SUM if column.is_decimal:
                return decimal(column.precision + 10, column.scale)
            case Function.SUM:
                return DOUBLE if column.is_float else BIGINT
            case Function.AVG:
                return decimal(column.precision + 4, column.scale + 4) if column.is_decimal else DOUBLE
            case Function.COLLECT_LIST | Function.TOP_K:
                return array(column)
        return column

    def check_input(self, field: Field) -> None:
        """Refuse a column that this aggregate cannot take."""
        check_collation(field, self.name)
        if self.function is Function.COUNT:
            return
        if self.function in _NUMERIC_ONLY and not field.type.is_numeric:
            raise AnalysisError(
                f"{self.name}: {self.function} needs a number, and column {field.name!r} is a {field.type}: cast it "
                f"before tailrace.stream(...), for example df.withColumn({field.name!r}, "
                f"F.col({field.name!r}).cast('double'))"
            )
        if field.type.kind is None:
            raise AnalysisError(
                f"{self.name}: {self.function} of a {field.type} is not supported (column {field.name!r}): take "
                f"numbers, string, boolean, date, timestamp, timestamp_ntz, decimal or binary"
            )


def _aggregate(function: Function, col: str, *, label: str = "", ignore_nulls: bool = False) -> Aggregate:
    if not isinstance(col, str) or not col:
        raise AnalysisError(
            f"{label or function} takes a column's name, but got {col!r} ({type(col).__name__}): compute expressions "
            f"before tailrace.stream(...), for example with df.withColumn, and name the column here"
        )
    return Aggregate(function, unquoted(col), ignore_nulls, label)


def count(col: str = "*") -> Aggregate:
    """Rows, or with a column's name the rows where that column is not null."""
    # A Spark Column compares to a Column, not to a truth: look at the type first.
    if isinstance(col, str) and col == "*":
        return Aggregate(Function.COUNT, None)
    return _aggregate(Function.COUNT, col)


def sum(col: str) -> Aggregate:
    """The sum of the values that are not null; null where there is none."""
    return _aggregate(Function.SUM, col)


def min(col: str) -> Aggregate:
    """The smallest value; nulls are left out."""
    return _aggregate(Function.MIN, col)


def max(col: str) -> Aggregate:
    """The largest value; nulls are left out."""
    return _aggregate(Function.MAX, col)


def avg(col: str) -> Aggregate:
    """The mean of the values that are not null."""
    return _aggregate(Function.AVG, col)


def mean(col: str) -> Aggregate:
    """Another name for :func:`avg`."""
    return avg(col)


def first(col: str, ignorenulls: bool = False) -> Aggregate:
    """The value with the smallest event time; of several, the smallest, null before any other."""
    return _aggregate(Function.FIRST, col, ignore_nulls=ignorenulls)


def last(col: str, ignorenulls: bool = False) -> Aggregate:
    """The value with the largest event time; of several, the largest."""
    return _aggregate(Function.LAST, col, ignore_nulls=ignorenulls)


def stddev(col: str) -> Aggregate:
    """The sample standard deviation; null below two values."""
    return _aggregate(Function.STDDEV, col)


def stddev_samp(col: str) -> Aggregate:
    """:func:`stddev` under its longer name, which is also in its output's default name."""
    return _aggregate(Function.STDDEV, col, label="stddev_samp")


def median(col: str) -> Aggregate:
    """The middle value of those that are not null, between the two middle ones where their number is even."""
    return replace(_aggregate(Function.QUANTILE, col, label="median"), argument=0.5)


def quantile(col: str, share: float) -> Aggregate:
    """The value below which ``share`` of the rows lie, as Spark's ``percentile``.

    >>> quantile("price", 0.99).name
    'quantile(price, 0.99)'
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise AnalysisError(f"quantile: share must be a number from 0 to 1, but is {share!r}: quantile('price', 0.99)")
    return replace(_aggregate(Function.QUANTILE, col), argument=float(share))


def count_distinct(col: str) -> Aggregate:
    """How many different values there are, exactly; nulls are left out."""
    return _aggregate(Function.COUNT_DISTINCT, col)


def collect_list(col: str) -> Aggregate:
    """All values that are not null, by event time and then by value: in the same order whenever it is asked."""
    return _aggregate(Function.COLLECT_LIST, col)


def top_k(col: str, k: int) -> Aggregate:
    """The ``k`` largest values, largest first; nulls are left out.

    >>> top_k("price", 10).name
    'top_k(price, 10)'
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise AnalysisError(f"top_k: k must be a whole number of at least 1, but is {k!r}: top_k('price', 10)")
    return replace(_aggregate(Function.TOP_K, col), argument=k)


BY_NAME: dict[str, Callable[[str], Aggregate]] = {
    "count": count,
    "sum": sum,
    "min": min,
    "max": max,
    "avg": avg,
    "mean": mean,
    "first": first,
    "last": last,
    "stddev": stddev,
    "stddev_samp": stddev_samp,
    "median": median,
    "count_distinct": count_distinct,
    "collect_list": collect_list,
}
"""For ``agg({"price": "max"})``, as PySpark allows it."""
