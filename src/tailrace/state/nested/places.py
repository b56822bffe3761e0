"""What packing and unpacking of nested values share: where their bytes lie."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

ABSENT = -1
"""The position of what is not there."""
LENGTH = 4
"""Bytes of a length, or of a count."""


def is_large_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(type_) or pa.types.is_large_binary(type_))


def each_place(first: np.ndarray, counts: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """The place of each element: a list's are one behind the other from ``first`` on, and so wide."""
    before = np.cumsum(widths) - widths
    starts = np.cumsum(counts) - counts
    offset = np.repeat(first - before[np.minimum(starts, max(len(before) - 1, 0))] if len(before) else first, counts)
    return np.where(np.repeat(first, counts) < 0, ABSENT, offset + before)


def bitmap_of(valid: np.ndarray | None) -> pa.Buffer | None:
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
