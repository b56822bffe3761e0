"""The smallest and the largest value, and the first and the last by event time."""

from __future__ import annotations

from tailrace.api.aggregates import Aggregate
from tailrace.api.columns import ColumnOrName
from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput, Inputs
from tailrace.operators.aggregate.functions.descriptor import Check, Descriptor, boolean, kept, same_type
from tailrace.state.layout import Merge

__all__ = ["bool_and", "bool_or", "first", "last", "max", "min"]


def _extreme(merge: Merge, name: str = "", takes: Check = kept) -> Descriptor:
    def keeps(inputs: Inputs) -> tuple[Accumulator, ...]:
        return (Accumulator(merge, AccumulatorInput.VALUE, inputs.column, inputs.type),)

    return Descriptor(name or merge.value, same_type, keeps=keeps, takes=takes)


def _by_time(merge: Merge) -> Descriptor:
    def keeps(inputs: Inputs) -> tuple[Accumulator, ...]:
        (ignore_nulls,) = inputs.arguments
        input = AccumulatorInput.TIMED_PRESENT if ignore_nulls else AccumulatorInput.TIMED
        return (Accumulator(merge, input, inputs.column, inputs.type),)

    return Descriptor(merge.value, same_type, keeps=keeps, needs_time=True)


_MIN, _MAX = _extreme(Merge.MIN), _extreme(Merge.MAX)
_BOOL_AND, _BOOL_OR = _extreme(Merge.MIN, "bool_and", boolean), _extreme(Merge.MAX, "bool_or", boolean)
_FIRST, _LAST = _by_time(Merge.FIRST), _by_time(Merge.LAST)


def min(col: ColumnOrName) -> Aggregate:
    """The smallest value; nulls are left out.

    >>> min("price").name
    'min(price)'
    """
    return _MIN(col)


def max(col: ColumnOrName) -> Aggregate:
    """The largest value; nulls are left out."""
    return _MAX(col)


def first(col: ColumnOrName, ignorenulls: bool = False) -> Aggregate:
    """The value with the smallest event time; of several, the smallest, null before any other."""
    return _FIRST(col, arguments=(ignorenulls,))


def last(col: ColumnOrName, ignorenulls: bool = False) -> Aggregate:
    """The value with the largest event time; of several, the largest."""
    return _LAST(col, arguments=(ignorenulls,))


def bool_and(col: ColumnOrName) -> Aggregate:
    """Whether all values that are not null are true; null where there is none.

    >>> bool_and("valid").name
    'bool_and(valid)'
    """
    return _BOOL_AND(col)


def bool_or(col: ColumnOrName) -> Aggregate:
    """Whether some value is true; null where all are null."""
    return _BOOL_OR(col)
