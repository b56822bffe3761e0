"""Rows in the order of several columns: how values compare, and a sort that looks only at what it needs. Pure.

Most rows differ in their first columns, event times and numbers. So whole numbers are packed into 64-bit keys
as far as they fit and sorted by counting; only rows that are still equal are looked at again, by the next columns. A
text is compared only where all before it is equal, and need not be there before (``LateColumn``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.state.rows.arrange import bits_for, sorted_order

_KEY_BITS = 64
_LEAST = -(2**63)


@dataclass(frozen=True)
class LateColumn:
    """A column whose values are made when they are asked for, by the numbers of their rows."""

    values: Callable[[np.ndarray], pa.Array]


def in_order(columns: dict[str, pa.Array], names: Sequence[str]) -> dict[str, pa.Array]:
    """The same rows, ordered by these columns; null comes first. Rows that are equal in them stay as they are."""
    count = len(next(iter(columns.values()))) if columns else 0
    order = pa.array(row_order([columns[name] for name in names], count))
    return {name: column.take(order) for name, column in columns.items()}


def row_order(arrays: Sequence[pa.Array | LateColumn], count: int) -> np.ndarray:
    """The numbers of ``count`` rows in the order of these columns, the first one first."""
    order = np.arange(count, dtype=np.int64)
    places, runs = order.copy(), np.zeros(count, np.int64)  # of rows that equal another so far, and which they equal
    left = list(arrays)
    while left and len(places):
        rows = order[places]
        by_key, keys = sorted_order(_keys(rows, runs, left))
        order[places] = rows[by_key]
        runs = np.concatenate([[0], np.cumsum(keys[1:] != keys[:-1])])
        still = np.bincount(runs)[runs] > 1
        places, runs = places[still], runs[still]
    return order


def _keys(rows: np.ndarray, runs: np.ndarray, left: list[pa.Array | LateColumn]) -> np.ndarray:
    """A key for each row: its run, then columns as far as they fit, which are taken from ``left``. At least one."""
    keys = np.cumsum(np.append(False, runs[1:] != runs[:-1])).astype(np.uint64)
    bits = bits_for(int(keys[-1]) + 1)
    first = True
    while left and (first or (isinstance(left[0], pa.Array) and _whole(left[0].type))):
        array = left[0]
        if isinstance(array, LateColumn):
            numbers = ranks_with_null(array.values(rows))
        elif len(rows) == len(array):
            numbers = ranks_with_null(array)[rows]
        else:
            numbers = ranks_with_null(array.take(pa.array(rows)))
        width = (int(numbers.max()) - int(numbers.min())).bit_length()
        if first and bits + width > _KEY_BITS:
            _, numbers = np.unique(numbers, return_inverse=True)
            width = bits_for(int(numbers.max()) + 1)
        if bits + width > _KEY_BITS:
            break
        above = numbers.astype(np.uint64) - np.uint64(int(numbers.min()) % 2**64)
        keys = above if not bits else (keys << np.uint64(width)) | above
        bits += width
        first = False
        left.pop(0)
    return keys


def ranks_with_null(array: pa.Array) -> np.ndarray:
    """As :func:`sort_ranks`, with null before any value."""
    if array.null_count == 0:
        return sort_ranks(array)
    valid = np.asarray(pc.is_valid(array).to_numpy(zero_copy_only=False), bool)
    ranks = np.zeros(len(array), np.int64)
    present = sort_ranks(array.drop_null())
    ranks[valid] = present
    ranks[~valid] = int(present.min(initial=1)) - 1
    return ranks


def sort_ranks(array: pa.Array) -> np.ndarray:
    """Numbers that order and distinguish values (none is null) as Spark does: NaN is the largest, -0.0 is 0.0.

    None of them is the least of all numbers: there is one before each, and each has a negative.
    """
    if _whole(array.type):
        numbers = np.asarray(array.cast(pa.int64()) if not pa.types.is_date32(array.type) else array.cast(pa.int32()))
        if not len(numbers) or int(numbers.min()) > _LEAST:
            return numbers.astype(np.int64, copy=False)
    if pa.types.is_floating(array.type):
        doubles = np.asarray(array.cast(pa.float64())) + 0.0  # -0.0 becomes 0.0
        _, ranks = np.unique(doubles, return_inverse=True)  # all NaNs are one, and last
        return ranks.astype(np.int64)
    return np.asarray(pc.rank(array, tiebreaker="dense")).astype(np.int64)


def _whole(type_: pa.DataType) -> bool:
    """Whether values are whole numbers of at most 64 bits, or times that are."""
    return bool(pa.types.is_signed_integer(type_) or pa.types.is_timestamp(type_) or pa.types.is_date32(type_))
