"""Numbers for rows of any columns: equal rows get the same one, different rows different ones.

Nulls are equal to each other, and so are NaNs. Pure functions, over whole columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def codes_of(columns: Sequence[pa.Array | pa.ChunkedArray], rows: int) -> np.ndarray:
    """A number for each row, from 0 on.

    >>> codes_of([pa.array(["a", "b", "a"]), pa.array([[1], None, [1]])], 3).tolist()
    [0, 1, 0]
    """
    codes = np.zeros(rows, np.int64)
    for column in columns:
        array = column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks) if rows else None
        codes = _both(codes, _codes(array)) if array is not None else codes
    return codes


def occurrences(codes: np.ndarray) -> np.ndarray:
    """The how many-th of its number each is.

    >>> occurrences(np.array([5, 3, 5])).tolist()
    [0, 0, 1]
    """
    order = np.argsort(codes, kind="stable")
    first = np.ones(len(codes), bool)
    first[1:] = codes[order][1:] != codes[order][:-1]
    starts = np.maximum.accumulate(np.where(first, np.arange(len(codes)), 0))
    found = np.empty(len(codes), np.int64)
    found[order] = np.arange(len(codes)) - starts
    return found


def _both(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    if not len(one):
        return one
    return np.unique(one * (int(other.max()) + 1) + other, return_inverse=True)[1].reshape(-1)


def _codes(array: pa.Array) -> np.ndarray:
    """Null has a number of its own."""
    type_ = array.type
    if pa.types.is_null(type_):
        return np.zeros(len(array), np.int64)
    valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.int64)
    if pa.types.is_struct(type_):
        return codes_of([pa.array(valid), *array.flatten()], len(array))
    if pa.types.is_map(type_):
        plain = pa.list_(pa.struct([("key", type_.key_type), ("value", type_.item_type)]))
        return _codes(array.cast(plain))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _lists(array, valid)
    indices = array.dictionary_encode(null_encoding="encode").indices
    return np.asarray(indices.to_numpy(zero_copy_only=False), np.int64)


def _lists(array: pa.Array, valid: np.ndarray) -> np.ndarray:
    """A list is told from others by the bytes of its elements' numbers."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False), np.int64)
    elements = _codes(array.flatten())
    ends = np.concatenate([[0], np.cumsum(lengths) * elements.itemsize])
    buffers = [None, pa.py_buffer(ends.astype(np.int64)), pa.py_buffer(np.ascontiguousarray(elements))]
    return codes_of([pa.array(valid), pa.Array.from_buffers(pa.large_binary(), len(array), buffers)], len(array))
