"""Arrow columns to words of records, and back.

Whole columns at a time. Null slots become the word 0. Nothing here knows hashes, panes or shards.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.state.rows.buffers import view
from tailrace.state.rows.string_kernels import pack_strings, string_offsets, unpack_strings
from tailrace.types import DataType, Kind

STRING_BYTES_MAX = (1 << 31) - 8192
"""Of one byte string, a state included: what one call of the system reads, with the length before it."""

_ARROW = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "string": pa.string(),
    "binary": pa.binary(),
}


def arrow_type(type_: DataType, large: bool = False) -> pa.DataType:
    if (element := type_.element) is not None:
        return pa.list_(arrow_type(element))
    if (bounds := type_.bounds) is not None:
        return pa.struct([pa.field(edge, arrow_type(bounds)) for edge in ("start", "end")])
    if large and type_.kind is Kind.BYTES:
        return pa.large_string() if type_.name == "string" else pa.large_binary()
    if type_.packed is not None:
        return pa.binary()
    if type_.is_decimal:
        return pa.decimal128(type_.precision, type_.scale)
    return _ARROW[type_.name]


def check_type(array: pa.Array, type_: DataType) -> None:
    """``ValueError`` where an array of the wire is not of the type: what follows reads its buffers as if it were."""
    fits = array.type in (arrow_type(type_), arrow_type(type_, large=True))
    if not fits and not (type_.is_time and pa.types.is_timestamp(array.type)):
        raise ValueError(f"a column of {array.type} is none of {type_.name}")


def valid_mask(array: pa.Array) -> np.ndarray | None:
    """Which slots are not null, or None where all are."""
    if array.null_count == 0:
        return None
    return np.asarray(pc.is_valid(array).to_numpy(zero_copy_only=False), bool)


def fixed_words(array: pa.Array, type_: DataType, valid: np.ndarray | None) -> np.ndarray:
    """The values as ``int64[n]``, or ``int64[n, 2]`` (low, high) for wide decimals; 0 where null."""
    if type_.is_decimal:
        pairs = _decimal_pairs(array)
        words = pairs if type_.kind is Kind.INT128 else pairs[:, 0]
    else:
        words = _plain_words(array, type_)
    if valid is None:
        return words
    return np.where(valid if words.ndim == 1 else valid[:, None], words, 0)


def double_words(array: pa.Array, type_: DataType, valid: np.ndarray | None) -> np.ndarray:
    """Numbers as doubles, as words; 0 where null."""
    if type_.is_decimal or not type_.is_float:
        array = pc.cast(array, pa.float64(), safe=False)
    elif array.type != pa.float64():
        array = array.cast(pa.float64())
    words = _buffer(array, np.float64).view(np.int64)
    return words if valid is None else np.where(valid, words, 0)


def _plain_words(array: pa.Array, type_: DataType) -> np.ndarray:
    name = type_.name
    if name == "boolean":
        return _buffer(array.cast(pa.int8()), np.int8).astype(np.int64)
    if name == "float":
        return _buffer(array, np.float32).astype(np.float64).view(np.int64)
    if name == "double":
        return _buffer(array, np.float64).view(np.int64)
    if type_.is_time:
        if array.type.unit != "us":
            array = array.cast(pa.timestamp("us", array.type.tz))
        return _buffer(array, np.int64)
    width = {"tinyint": np.int8, "smallint": np.int16, "int": np.int32, "date": np.int32}.get(name)
    return _buffer(array, np.int64) if width is None else _buffer(array, width).astype(np.int64)


def _buffer(array: pa.Array, dtype: type) -> np.ndarray:
    """The raw values, null slots as they happen to be."""
    return view(array.buffers()[1], dtype, len(array), array.offset)


def _decimal_pairs(array: pa.Array) -> np.ndarray:
    return view(array.buffers()[1], np.int64, 2 * len(array), 2 * array.offset).reshape(-1, 2)


def string_heap(array: pa.Array, valid: np.ndarray | None, heap_start: int) -> tuple[np.ndarray, np.ndarray]:
    """Length-prefixed strings for a heap that continues at ``heap_start``: (positions as words, bytes)."""
    count = len(array)
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offset_buffer, data = array.buffers()
    if count == 0 or offset_buffer is None:
        return np.zeros(count, np.int64), np.empty(0, np.uint8)
    dtype = np.int64 if large else np.int32
    offsets = view(offset_buffer, dtype, count + 1, array.offset).astype(np.int64)
    if offsets[-1] - offsets[0] > STRING_BYTES_MAX and (longest := int(np.diff(offsets).max())) > STRING_BYTES_MAX:
        raise OverflowError(
            f"a record would hold a value of {longest:,} bytes, and at most {STRING_BYTES_MAX:,} fit: a set of so many "
            "values is better counted by approx_count_distinct"
        )
    source = view(data, np.uint8, 0 if data is None else data.size)
    out = np.empty(int(offsets[-1] - offsets[0]) + 4 * count, np.uint8)
    words = np.zeros(count, np.int64)
    present = valid if valid is not None else np.ones(count, np.bool_)
    end = pack_strings(offsets, source, present, heap_start, words, out)
    return words, out[:end]


def decode(
    words: np.ndarray, valid: np.ndarray | None, heap: np.ndarray, type_: DataType, large: bool = False
) -> pa.Array:
    """Words (``int64[n]``, or ``int64[n, 2]`` for wide decimals) to an Arrow array of the type's Arrow form.

    ``large``: strings with 64-bit offsets, for as many as there may be.
    """
    if type_.kind is Kind.BYTES:
        return _decode_strings(np.ascontiguousarray(words), valid, heap, type_, large)
    count = len(words)
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    target = arrow_type(type_)
    if type_.is_decimal:
        pairs = words
        if words.ndim == 1:
            pairs = np.empty((count, 2), np.int64)
            pairs[:, 0] = words
            pairs[:, 1] = words >> 63
        return pa.Array.from_buffers(target, count, [bitmap, pa.py_buffer(np.ascontiguousarray(pairs))])
    if type_.name == "boolean":
        values = pa.py_buffer(np.packbits(words != 0, bitorder="little"))
        return pa.Array.from_buffers(target, count, [bitmap, values])
    if type_.is_float:
        numbers = np.ascontiguousarray(words).view(np.float64)
        values = pa.py_buffer(numbers if type_.name == "double" else numbers.astype(np.float32))
        return pa.Array.from_buffers(target, count, [bitmap, values])
    width = {"tinyint": np.int8, "smallint": np.int16, "int": np.int32, "date": np.int32}.get(type_.name, np.int64)
    return pa.Array.from_buffers(target, count, [bitmap, pa.py_buffer(np.ascontiguousarray(words, width))])


def _decode_strings(
    words: np.ndarray, valid: np.ndarray | None, heap: np.ndarray, type_: DataType, large: bool
) -> pa.Array:
    count = len(words)
    present = valid if valid is not None else np.ones(count, np.bool_)
    offsets = np.zeros(count + 1, np.int64)
    string_offsets(words, present, heap, offsets)
    data = np.empty(int(offsets[-1]), np.uint8)
    unpack_strings(words, present, heap, offsets, data)
    if not large and offsets[-1] > STRING_BYTES_MAX:
        raise OverflowError(f"strings of {offsets[-1]:,} bytes in one batch: at most {STRING_BYTES_MAX:,} fit")
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    edges = pa.py_buffer(offsets if large else offsets.astype(np.int32))
    target = arrow_type(type_, large)
    return pa.Array.from_buffers(target, count, [bitmap, edges, pa.py_buffer(data)])
