"""Variances and standard deviations: made of count, mean and squared differences, which merge."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tailrace.api.aggregates import Aggregate
from tailrace.api.columns import ColumnOrName
from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput, Inputs, Output
from tailrace.operators.aggregate.functions.descriptor import Descriptor, numeric
from tailrace.operators.aggregate.functions.values import Values, doubles_where
from tailrace.state.layout import Merge
from tailrace.types import DOUBLE

__all__ = ["stddev", "stddev_pop", "stddev_samp", "var_pop", "var_samp", "variance"]


def _spread(name: str, *, sample: bool, root: bool) -> Descriptor:
    """``sample``: divided by one less than the count, so that it is null below two values."""

    def keeps(inputs: Inputs) -> tuple[Accumulator, ...]:
        return (Accumulator(Merge.MOMENTS, AccumulatorInput.DOUBLE, inputs.column, DOUBLE),)

    def finish(values: Sequence[Values], output: Output) -> pa.Array:
        divisor = values[0].doubles(0) - sample
        there = divisor > 0
        variance = np.divide(values[0].doubles(2), divisor, out=np.zeros(len(divisor)), where=there)
        return doubles_where(np.sqrt(variance) if root else variance, there)

    return Descriptor(
        name,
        lambda inputs: DOUBLE,
        keeps=keeps,
        finish=finish,
        takes=numeric,
        made_of=lambda parts: f"{name} of {parts[0]}",
    )


_STDDEV = _spread("stddev", sample=True, root=True)
_STDDEV_POP = _spread("stddev_pop", sample=False, root=True)
_VAR_SAMP = _spread("var_samp", sample=True, root=False)
_VAR_POP = _spread("var_pop", sample=False, root=False)


def stddev(col: ColumnOrName) -> Aggregate:
    """The sample standard deviation; null below two values."""
    return _STDDEV(col)


def stddev_samp(col: ColumnOrName) -> Aggregate:
    """:func:`stddev` under its longer name, which is also in its output's default name.

    >>> stddev_samp("price").name
    'stddev_samp(price)'
    """
    return _STDDEV(col, label="stddev_samp")


def stddev_pop(col: ColumnOrName) -> Aggregate:
    """The standard deviation of all values; 0 of a single one."""
    return _STDDEV_POP(col)


def var_samp(col: ColumnOrName) -> Aggregate:
    """The sample variance; null below two values."""
    return _VAR_SAMP(col)


def variance(col: ColumnOrName) -> Aggregate:
    """:func:`var_samp` under its shorter name, which is also in its output's default name.

    >>> variance("price").name
    'variance(price)'
    """
    return _VAR_SAMP(col, label="variance")


def var_pop(col: ColumnOrName) -> Aggregate:
    """The variance of all values; 0 of a single one."""
    return _VAR_POP(col)
