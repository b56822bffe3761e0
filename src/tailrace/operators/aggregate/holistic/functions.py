"""Aggregates that need all rows of a group: whole columns in, one value for each group out.

Null values are left out, as Spark leaves them out; a group without any other gives null, 0 or an empty list.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.ids import MIN_MICROS
from tailrace.operators.rows.groups import Groups
from tailrace.operators.rows.row_order import sort_ranks
from tailrace.state.rows.arrange import bits_for, sorted_order

_KEY_BITS = 64


def quantile(groups: Groups, column: str, share: float) -> pa.Array:
    """The value below which ``share`` of the group lies, between two rows by their distance: Spark's ``percentile``."""
    values, numbers = _present(groups, column)
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


def count_distinct(groups: Groups, column: str) -> pa.Array:
    values, numbers = _present(groups, column)
    ranks = sort_ranks(values)
    order = np.lexsort((ranks, numbers))
    numbers, ranks = numbers[order], ranks[order]
    new = np.ones(len(numbers), bool)
    new[1:] = (numbers[1:] != numbers[:-1]) | (ranks[1:] != ranks[:-1])
    return pa.array(np.bincount(numbers[new], minlength=len(groups)).astype(np.int64))


def collect_list(groups: Groups, column: str, time: str) -> pa.Array:
    """By event time (none comes first), then by value: rows may come in another order when they come again."""
    values, numbers, times = _present(groups, column, time)
    known = np.asarray(pc.fill_null(times.cast(pa.int64()), MIN_MICROS))  # without windows a row may have no time
    order = np.lexsort((sort_ranks(values), known, numbers))
    return _lists(values.take(pa.array(order)), np.bincount(numbers, minlength=len(groups)))


def top_k(groups: Groups, column: str, k: int) -> pa.Array:
    """The ``k`` largest values, largest first."""
    values, numbers = _present(groups, column)
    order = np.lexsort((-sort_ranks(values), numbers))
    counts = np.bincount(numbers, minlength=len(groups))
    place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    return _lists(values.take(pa.array(order[place < k])), np.minimum(counts, k))


def _present(groups: Groups, column: str, *beside: str) -> Any:
    """The values that are not null, the numbers of their groups, and the same rows of other columns."""
    values, numbers = groups.columns[column], groups.numbers
    others = [groups.columns[name] for name in beside]
    if values.null_count == 0:
        return values, numbers, *others
    there = pc.is_valid(values)
    numbers = numbers[np.asarray(there.to_numpy(zero_copy_only=False), bool)]
    return values.filter(there), numbers, *(other.filter(there) for other in others)


def _lists(values: pa.Array, counts: np.ndarray) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(counts)])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise OverflowError(f"lists of {offsets[-1]:,} values in one batch: at most 2,147,483,647 fit")
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)
