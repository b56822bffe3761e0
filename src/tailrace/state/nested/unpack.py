"""Structs, arrays and maps of the byte strings that ``pack`` makes, whose form it describes. Threads: any."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.state.nested.nested_kernels import get_bytes, get_fixed
from tailrace.state.nested.places import ABSENT, LENGTH, bitmap_of, each_place, is_large_text
from tailrace.state.rows.buffers import view
from tailrace.state.rows.columns import STRING_BYTES_MAX, valid_mask


def unpack_nested(packed: pa.Array, type_: pa.DataType) -> pa.Array:
    """The values that ``pack_nested`` made byte strings of, as Arrow's type."""
    if packed.type != pa.large_binary():
        packed = packed.cast(pa.large_binary())
    _, edges, data = packed.buffers()
    offsets = view(edges, np.int64, len(packed) + 1, packed.offset)
    whole = view(data, np.uint8, int(offsets[-1])) if data is not None else np.empty(0, np.uint8)
    valid = valid_mask(packed)
    at = offsets[:-1].copy() if valid is None else np.where(valid, offsets[:-1], ABSENT)
    return _read(type_, whole, at)[0]


def _read(type_: pa.DataType, data: np.ndarray, at: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """The values from these places on, and how many bytes each has."""
    count, there = len(at), at >= 0
    bitmap = bitmap_of(None if there.all() else there)
    if pa.types.is_struct(type_):
        children, next_ = [], at
        for number in range(type_.num_fields):
            child, size = _read_slots(type_.field(number).type, data, next_)
            children.append(child)
            next_ = np.where(there, next_ + size, ABSENT)
        return pa.Array.from_buffers(type_, count, [bitmap], children=children), np.where(there, next_ - at, 0)
    if pa.types.is_map(type_) or pa.types.is_list(type_):
        return _read_lists(type_, data, at, bitmap)
    if pa.types.is_string(type_) or pa.types.is_binary(type_) or is_large_text(type_):
        lengths = _numbers(data, at)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        text = np.empty(int(offsets[-1]), np.uint8)
        get_bytes(data, np.where(there, at + LENGTH, ABSENT), offsets, text)
        edges = pa.py_buffer(offsets if is_large_text(type_) else _small(offsets))
        made = pa.Array.from_buffers(type_, count, [bitmap, edges, pa.py_buffer(text)])
        return made, np.where(there, LENGTH + lengths, 0)
    width = 1 if pa.types.is_boolean(type_) else type_.bit_width // 8
    values = np.zeros((count, width), np.uint8)
    get_fixed(data, at, values)
    if pa.types.is_boolean(type_):
        values = np.packbits(values[:, 0] != 0, bitorder="little")
    return pa.Array.from_buffers(type_, count, [bitmap, pa.py_buffer(values)]), np.where(there, width, 0)


def _read_slots(type_: pa.DataType, data: np.ndarray, at: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """The values of slots, and how long these are."""
    flags = np.zeros((len(at), 1), np.uint8)
    get_fixed(data, at, flags)
    made, sizes = _read(type_, data, np.where(flags[:, 0] == 1, at + 1, ABSENT))
    width = _slot_width(type_)
    return made, np.where(at < 0, 0, 1 + sizes if width is None else width)


def _read_lists(
    type_: pa.DataType, data: np.ndarray, at: np.ndarray, bitmap: pa.Buffer | None
) -> tuple[pa.Array, np.ndarray]:
    counts = _numbers(data, at)
    element = type_.value_type if pa.types.is_list(type_) else pa.struct([type_.key_field, type_.item_field])
    behind, total, width = at + LENGTH, int(counts.sum()), _slot_width(element)
    if width is None:
        slots = _numbers(data, each_place(behind, counts, np.full(total, LENGTH)))
        behind = behind + LENGTH * counts
    else:
        slots = np.full(total, width, np.int64)
    elements, _ = _read_slots(element, data, each_place(behind, counts, slots))
    ends = np.concatenate([[0], np.cumsum(counts)])
    sums = np.concatenate([[0], np.cumsum(slots)])
    made = pa.Array.from_buffers(type_, len(at), [bitmap, pa.py_buffer(_small(ends))], children=[elements])
    return made, np.where(at < 0, 0, behind - at + sums[ends[1:]] - sums[ends[:-1]])


def _slot_width(type_: pa.DataType) -> int | None:
    """Of values of a fixed width."""
    if pa.types.is_boolean(type_):
        return 2
    return 1 + type_.bit_width // 8 if pa.types.is_primitive(type_) or pa.types.is_decimal(type_) else None


def _numbers(data: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The lengths and counts that lie at these places, 0 where nothing does."""
    found = np.zeros((len(at), LENGTH), np.uint8)
    get_fixed(data, at, found)
    return found.view("<u4")[:, 0].astype(np.int64)


def _small(offsets: np.ndarray) -> np.ndarray:
    if offsets[-1] > STRING_BYTES_MAX:
        raise OverflowError(f"nested values of {offsets[-1]:,} bytes in one batch: at most {STRING_BYTES_MAX:,} fit")
    return offsets.astype(np.int32)
