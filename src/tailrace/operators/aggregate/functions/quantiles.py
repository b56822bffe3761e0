"""Exact quantiles: holistic, since any value may turn out to be the one. Nulls are left out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.api.aggregates import Aggregate
from tailrace.api.columns import ColumnOrName
from tailrace.errors import AnalysisError
from tailrace.operators.aggregate.accumulators import Output
from tailrace.operators.aggregate.functions.descriptor import Descriptor, numeric
from tailrace.operators.aggregate.functions.groups import present_values
from tailrace.operators.rows.groups import Groups
from tailrace.state.rows.arrange import bits_for, sorted_order
from tailrace.types import DOUBLE

__all__ = ["median", "quantile"]

_KEY_BITS = 64


def quantiles(groups: Groups, column: str, share: float) -> pa.Array:
    """The value below which ``share`` of the group lies, between two rows by their distance: Spark's ``percentile``."""
    values, numbers = present_values(groups, column)
    doubles = np.asarray(values.cast(pa.float64(), safe=False))  # whole numbers beyond 2^53 are rounded, as in Spark
    order = _value_order(values, doubles, numbers)
    counts = np.bincount(numbers, minlength=len(groups))
    starts = np.cumsum(counts) - counts
    there = counts > 0
    place = np.maximum(counts - 1, 0) * share
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, np.maximum(counts - 1, 0))
    ordered = np.append(doubles[order], 0.0)  # one more, for groups without a value
    below, above = (ordered[np.where(there, starts + at, len(doubles))] for at in (low, high))
    with np.errstate(invalid="ignore"):
        mixed = below + (above - below) * (place - low)  # NaN where one is infinite, as in Spark
    return pa.array(np.where((place == low) | (below == above), below, mixed), mask=~there)


def _value_order(values: pa.Array, doubles: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Rows by group and then by value; NaN sorts last, as in Spark. Whole numbers are packed and sorted by counting."""
    if pa.types.is_signed_integer(values.type) and len(values):
        whole = np.asarray(values.cast(pa.int64()))
        least = int(whole.min())
        width = (int(whole.max()) - least).bit_length()
        bits = width + bits_for(int(numbers[-1]) + 1)
        if bits <= _KEY_BITS:
            above = whole.astype(np.uint64) - np.uint64(least % 2**64)
            keys = above if bits == width else (numbers.astype(np.uint64) << np.uint64(width)) | above
            return sorted_order(keys, high_bit=bits)[0]
    return np.lexsort((doubles, numbers))


def _of_rows(groups: Groups, output: Output, time: str) -> pa.Array:
    (column,), (share,) = output.columns, output.arguments
    assert isinstance(share, float)
    return quantiles(groups, column, share)


_QUANTILE = Descriptor("quantile", lambda inputs: DOUBLE, of_rows=_of_rows, takes=numeric)


def median(col: ColumnOrName) -> Aggregate:
    """The middle value of those that are not null, between the two middle ones where their number is even."""
    return _QUANTILE(col, arguments=(0.5,), label="median")


def quantile(col: ColumnOrName, share: float) -> Aggregate:
    """The value below which ``share`` of the rows lie, as Spark's ``percentile``.

    >>> quantile("price", 0.99).name
    'quantile(price, 0.99)'
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise AnalysisError(f"quantile: share must be a number from 0 to 1, but is {share!r}: quantile('price', 0.99)")
    return _QUANTILE(col, arguments=(float(share),), shown=f"quantile({{}}, {share:g})")
