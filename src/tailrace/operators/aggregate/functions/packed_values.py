"""Several values of one type as one byte string, so that a record can keep them: what sets and top lists are made of.

Values of a fixed width lie as 64-bit words, two for wide decimals; strings lie length-prefixed, as in a record's heap.
The form is that of checkpoints: a change needs a new format version (docs/reference/log-format.md).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.state.layout import words_of
from tailrace.state.rows import columns
from tailrace.state.rows.buffers import view
from tailrace.state.rows.string_kernels import string_positions
from tailrace.types import DataType, Kind

BINARY = DataType("binary")


def pack(values: pa.Array, counts: np.ndarray, type_: DataType) -> pa.Array:
    """A string for each run of so many values; none is null."""
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    if type_.kind is Kind.BYTES:
        positions, data = columns.string_heap(values, None, 0)
        offsets = np.append(positions, len(data))[ends]
    else:
        assert type_.kind is not None
        data = np.ascontiguousarray(columns.fixed_words(values, type_, None)).view(np.uint8).reshape(-1)
        offsets = ends * (8 * words_of(type_.kind))
    return binary(offsets, data)


def unpack(packed: pa.Array, type_: DataType) -> tuple[pa.Array, np.ndarray]:
    """The values of all strings, one after the other, and how many each has; a null has none."""
    offsets, data = parts_of(packed)
    if type_.kind is Kind.BYTES:
        counts = np.zeros(len(packed), np.int64)
        positions = np.empty(len(data) // 4, np.int64)  # a string takes four bytes at least
        total = int(string_positions(data, offsets[:-1], offsets[1:], counts, positions))
        return columns.decode(positions[:total], None, data, type_, large=True), counts
    assert type_.kind is not None
    words = words_of(type_.kind)
    numbers = np.ascontiguousarray(data).view(np.int64)
    counts = np.diff(offsets) // (8 * words)
    return columns.decode(numbers if words == 1 else numbers.reshape(-1, 2), None, data, type_), counts


def binary(offsets: np.ndarray, data: np.ndarray) -> pa.Array:
    """Byte strings ``data[offsets[i] : offsets[i + 1]]``."""
    edges = pa.py_buffer(np.ascontiguousarray(offsets, np.int64))
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, [None, edges, pa.py_buffer(data)])


def parts_of(packed: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Offsets that begin with 0, and the bytes of all strings. Nulls are empty."""
    if packed.null_count:
        packed = packed.fill_null(b"")
    _, edges, data = packed.buffers()
    offsets = view(edges, np.int64, len(packed) + 1, packed.offset)
    size = int(offsets[-1] - offsets[0])
    first = int(offsets[0])
    whole = view(data, np.uint8, first + size) if data is not None else np.empty(0, np.uint8)
    # Its own copy: words must lie where the processor expects them.
    return offsets - first, whole[first:].copy()
