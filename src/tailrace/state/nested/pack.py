"""Structs, arrays and maps as byte strings, so that a record can keep them, and back. Whole columns at a time.

The form of a value, numbers with the lowest byte first:

- numbers, booleans, dates and times: the bytes that Arrow has (a boolean one, a decimal sixteen);
- strings and binary: four bytes for the length, then the bytes;
- structs: its fields, each in a *slot*: a byte that is 1, or 0 for null, then the value. The slot of a value of a fixed
  width is as long without it, and holds zeros then; that of any other ends behind the first byte;
- arrays: four bytes for how many elements there are; four for the length of each one's slot, where their width is not
  fixed; then their slots. A map is an array of structs of its keys and values.

Two values are equal exactly where their bytes are, but for floating-point numbers and maps. A value that is null itself
is no string. The form is that of checkpoints: a change needs a new format version (docs/reference/log-format.md).

Threads: any.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.state.nested.nested_kernels import put_bytes, put_fixed
from tailrace.state.nested.places import ABSENT, LENGTH, bitmap_of, each_place, is_large_text
from tailrace.state.rows.buffers import view
from tailrace.state.rows.columns import valid_mask


def pack_nested(array: pa.Array) -> pa.Array:
    """A byte string for each value; null where it is null."""
    value = _value_of(array)
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(value.sizes, out=offsets[1:])
    data = np.empty(int(offsets[-1]), np.uint8)
    present = np.ones(len(array), np.bool_) if value.valid is None else value.valid
    value.write(data, np.where(present, offsets[:-1], ABSENT))
    buffers = [bitmap_of(value.valid), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(array), buffers)


@dataclass(frozen=True)
class _Value:
    """The values of a column. ``sizes``: in bytes, 0 where null."""

    valid: np.ndarray | None
    sizes: np.ndarray

    def slots(self) -> np.ndarray:
        """The sizes of their slots."""
        return self.sizes + 1

    def write(self, data: np.ndarray, at: np.ndarray) -> None:
        """The values, those that have a place."""
        raise NotImplementedError

    def write_slots(self, data: np.ndarray, at: np.ndarray) -> None:
        flags = np.ones(len(at), np.uint8) if self.valid is None else self.valid.astype(np.uint8)
        put_fixed(data, at, flags.reshape(-1, 1))
        there = at >= 0 if self.valid is None else (at >= 0) & self.valid
        self.write(data, np.where(there, at + 1, ABSENT))


@dataclass(frozen=True)
class _Fixed(_Value):
    values: np.ndarray  # the bytes of each, zeros where null

    def slots(self) -> np.ndarray:
        return np.full(len(self.sizes), 1 + self.values.shape[1], np.int64)

    def write(self, data: np.ndarray, at: np.ndarray) -> None:
        put_fixed(data, at, self.values)

    def write_slots(self, data: np.ndarray, at: np.ndarray) -> None:
        flags = np.ones(len(at), np.uint8) if self.valid is None else self.valid.astype(np.uint8)
        put_fixed(data, at, np.concatenate([flags.reshape(-1, 1), self.values], axis=1))


@dataclass(frozen=True)
class _Text(_Value):
    offsets: np.ndarray
    source: np.ndarray

    def write(self, data: np.ndarray, at: np.ndarray) -> None:
        lengths = np.diff(self.offsets)
        put_fixed(data, at, _as_bytes(lengths.astype("<u4")))
        put_bytes(data, np.where(at < 0, ABSENT, at + LENGTH), self.offsets, self.source)


@dataclass(frozen=True)
class _Struct(_Value):
    fields: list[_Value]

    def write(self, data: np.ndarray, at: np.ndarray) -> None:
        for field in self.fields:
            field.write_slots(data, at)
            at = np.where(at < 0, ABSENT, at + field.slots())


@dataclass(frozen=True)
class _List(_Value):
    ends: np.ndarray  # of the elements of each, from 0
    elements: _Value

    def write(self, data: np.ndarray, at: np.ndarray) -> None:
        counts = np.diff(self.ends)
        put_fixed(data, at, _as_bytes(counts.astype("<u4")))
        slots = self.elements.slots()
        behind = at + LENGTH
        if not isinstance(self.elements, _Fixed):
            table = np.where(at < 0, ABSENT, behind)
            put_fixed(data, each_place(table, counts, np.full(len(slots), LENGTH)), _as_bytes(slots.astype("<u4")))
            behind = behind + LENGTH * counts
        self.elements.write_slots(data, each_place(np.where(at < 0, ABSENT, behind), counts, slots))


def _value_of(array: pa.Array) -> _Value:
    valid, type_ = valid_mask(array), array.type
    if pa.types.is_struct(type_):
        fields = [_value_of(each) for each in array.flatten()]
        return _Struct(
            valid, _sizes(sum((each.slots() for each in fields), np.zeros(len(array), np.int64)), valid), fields
        )
    if pa.types.is_map(type_):
        return _value_of(_as_list(array))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        counts = np.asarray(array.value_lengths().fill_null(0)).astype(np.int64)
        ends = np.concatenate([[0], np.cumsum(counts)])
        elements = _value_of(array.flatten())
        slots = np.concatenate([[0], np.cumsum(elements.slots())])
        table = 0 if isinstance(elements, _Fixed) else LENGTH * counts
        return _List(valid, _sizes(LENGTH + table + slots[ends[1:]] - slots[ends[:-1]], valid), ends, elements)
    if pa.types.is_string(type_) or pa.types.is_binary(type_) or is_large_text(type_):
        _, edges, data = array.buffers()
        dtype = np.int64 if is_large_text(type_) else np.int32
        offsets = (
            np.zeros(1, np.int64)
            if edges is None
            else view(edges, dtype, len(array) + 1, array.offset).astype(np.int64)
        )
        source = view(data, np.uint8, 0 if data is None else data.size)
        return _Text(valid, _sizes(LENGTH + np.diff(offsets), valid), offsets, source)
    values = _fixed_bytes(array)
    if valid is not None:
        values = np.where(valid[:, None], values, 0).astype(np.uint8)
    return _Fixed(valid, _sizes(np.full(len(array), values.shape[1], np.int64), valid), values)


def _sizes(sizes: np.ndarray, valid: np.ndarray | None) -> np.ndarray:
    return sizes if valid is None else np.where(valid, sizes, 0)


def _as_list(array: pa.Array) -> pa.Array:
    """Of maps: they lie as lists of structs do."""
    entries = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
    type_ = pa.list_(entries.type)
    return pa.Array.from_buffers(type_, len(array), array.buffers()[:2], offset=array.offset, children=[entries])


def _fixed_bytes(array: pa.Array) -> np.ndarray:
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    width = array.type.bit_width // 8
    return view(array.buffers()[1], np.uint8, width * len(array), width * array.offset).reshape(-1, width)


def _as_bytes(numbers: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(numbers).view(np.uint8).reshape(len(numbers), numbers.itemsize)
