"""Counts, sums and means."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tailrace.api.aggregates import Aggregate
from tailrace.api.columns import ColumnOrName
from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput, Inputs, Output
from tailrace.operators.aggregate.functions.descriptor import Descriptor, anything, boolean, numeric
from tailrace.operators.aggregate.functions.values import Values
from tailrace.state.layout import Merge
from tailrace.types import BIGINT, DOUBLE, DataType, decimal

__all__ = ["avg", "count", "count_if", "mean", "sum"]

ROWS = Accumulator(Merge.ADD, AccumulatorInput.ONE, None, BIGINT)
"""The number of rows."""


def present(column: str) -> Accumulator:
    """How many rows have a value that is not null."""
    return Accumulator(Merge.ADD, AccumulatorInput.PRESENT, column, BIGINT)


def total_type(type_: DataType) -> DataType:
    """The type of a sum."""
    if type_.is_decimal:
        return decimal(type_.precision + 10, type_.scale)
    return DOUBLE if type_.is_float else BIGINT


def total(column: str, type_: DataType) -> Accumulator:
    """The sum of a column."""
    input = AccumulatorInput.DOUBLE if type_.is_float else AccumulatorInput.VALUE
    return Accumulator(Merge.ADD, input, column, total_type(type_))


def _counted(inputs: Inputs) -> tuple[Accumulator, ...]:
    return (present(inputs.column) if inputs.columns else ROWS,)


def _mean_type(inputs: Inputs) -> DataType:
    type_ = inputs.type
    return decimal(type_.precision + 4, type_.scale + 4) if type_.is_decimal else DOUBLE


def _mean_of(inputs: Inputs) -> tuple[Accumulator, ...]:
    column, type_ = inputs.column, inputs.type
    # Spark adds whole numbers as doubles here, where sum adds them exactly.
    summed = total(column, type_ if type_.is_decimal else DOUBLE)
    return summed, present(column)


def _mean(values: Sequence[Values], output: Output) -> pa.Array:
    summed, counted = values
    return summed.quotients(counted.integers(), output.type)


_COUNT = Descriptor("count", lambda inputs: BIGINT, keeps=_counted, takes=anything)
_COUNT_IF = Descriptor(
    "count_if",
    lambda inputs: BIGINT,
    keeps=lambda inputs: (Accumulator(Merge.ADD, AccumulatorInput.VALUE, inputs.column, BIGINT),),
    finish=lambda values, output: pa.array(values[0].integers()),
    takes=boolean,
)
_SUM = Descriptor(
    "sum",
    lambda inputs: total_type(inputs.type),
    keeps=lambda inputs: (total(inputs.column, inputs.type),),
    takes=numeric,
)
_AVG = Descriptor("avg", _mean_type, keeps=_mean_of, finish=_mean, takes=numeric, made_of=" / ".join)


def count(col: ColumnOrName = "*") -> Aggregate:
    """Rows, or with a column's name the rows where that column is not null.

    >>> count().name, count("price").name
    ('count(1)', 'count(price)')
    """
    # A Spark Column compares to a Column, not to a truth: look at the type first.
    if isinstance(col, str) and col == "*":
        return _COUNT(shown="count(1)")
    return _COUNT(col)


def count_if(col: ColumnOrName) -> Aggregate:
    """The rows where the column is true.

    >>> count_if("open").name
    'count_if(open)'
    """
    return _COUNT_IF(col)


def sum(col: ColumnOrName) -> Aggregate:
    """The sum of the values that are not null; null where there is none."""
    return _SUM(col)


def avg(col: ColumnOrName) -> Aggregate:
    """The mean of the values that are not null."""
    return _AVG(col)


def mean(col: ColumnOrName) -> Aggregate:
    """Another name for :func:`avg`."""
    return _AVG(col)
