"""State records as typed Arrow columns, the form in which they are checkpointed, and back.

A section's schema is ``__hash, __pane, k0.., a0..``: keys and accumulators with their own Arrow types, so that any
Arrow reader can look into a checkpoint. Null means: the key is null, or the accumulator holds nothing yet.
Documented in docs/reference/log-format.md; a change needs a new format version there.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.state.layout import HASH, PANE, VALID, AccumulatorWords, KeyWords, Merge, RecordLayout
from tailrace.state.rows import columns
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.rows.gather import Spread
from tailrace.state.rows.rows import Rows
from tailrace.types import BIGINT, DOUBLE, DataType, Kind


def section_schema(layout: RecordLayout) -> pa.Schema:
    fields = [pa.field("__hash", pa.int64()), pa.field("__pane", pa.int64())]
    fields += [pa.field(f"k{i}", columns.arrow_type(key.type, large=True)) for i, key in enumerate(layout.keys)]
    fields += [pa.field(f"a{i}", _accumulator_type(a)) for i, a in enumerate(layout.accumulators)]
    return pa.schema(fields)


def _accumulator_type(place: AccumulatorWords) -> pa.DataType:
    value = columns.arrow_type(place.type, large=True)
    if place.merge is Merge.MOMENTS:
        return pa.struct([("n", pa.float64()), ("mean", pa.float64()), ("m2", pa.float64())])
    if place.merge in (Merge.FIRST, Merge.LAST):
        return pa.struct([("time", pa.int64()), ("value", value)])
    if place.merge is Merge.BATCH:
        return pa.struct([("value", value)])
    if place.bit2 >= 0:
        return pa.struct([("value", pa.decimal128(38, place.type.scale)), ("overflowed", pa.bool_())])
    return value


class ValidBits:
    """The valid words of rows, asked bit by bit. Most bits are set in every row, which is seen at once."""

    def __init__(self, rows: Rows) -> None:
        self._words = rows.words[:, VALID]
        self._in_all = int(np.bitwise_and.reduce(self._words)) if len(rows) else -1

    def mask(self, bit: int) -> np.ndarray:
        return (self._words >> bit & 1).astype(bool)

    def missing(self, bit: int) -> np.ndarray | None:
        """The mask, or None where the bit is set in every row: as Arrow wants it."""
        return None if self._in_all >> bit & 1 else self.mask(bit)


def value_words(rows: Rows, word: int, kind: Kind | None) -> np.ndarray:
    if kind is Kind.INT128:
        return rows.words[:, word : word + 2]
    return np.ascontiguousarray(rows.words[:, word])


def decoded(rows: Rows, valid: ValidBits, place: KeyWords | AccumulatorWords) -> pa.Array:
    """A key, or a raw value, of every row as it is emitted."""
    words = value_words(rows, place.word, place.kind)
    return columns.decode(words, valid.missing(place.bit), rows.heap, place.type)


def to_section(rows: Rows, layout: RecordLayout) -> pa.RecordBatch:
    valid = ValidBits(rows)
    arrays: list[pa.Array] = [
        pa.array(np.ascontiguousarray(rows.words[:, HASH])),
        pa.array(np.ascontiguousarray(rows.words[:, PANE])),
    ]
    for key in layout.keys:
        words = value_words(rows, key.word, key.kind)
        arrays.append(columns.decode(words, valid.missing(key.bit), rows.heap, key.type, large=True))
    arrays += [_accumulator_array(rows, valid, place) for place in layout.accumulators]
    schema = section_schema(layout)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _accumulator_array(rows: Rows, valid: ValidBits, place: AccumulatorWords) -> pa.Array:
    present = valid.missing(place.bit)
    target = _accumulator_type(place)
    if not pa.types.is_struct(target):
        return columns.decode(value_words(rows, place.word, place.kind), present, rows.heap, place.type, large=True)
    if place.merge is Merge.MOMENTS:
        parts = [columns.decode(value_words(rows, place.word + i, None), None, rows.heap, DOUBLE) for i in range(3)]
    elif place.merge in (Merge.FIRST, Merge.LAST, Merge.BATCH):
        words = value_words(rows, place.value_word, place.kind)
        parts = [columns.decode(words, valid.missing(place.bit2), rows.heap, place.type, large=True)]
        if place.merge is not Merge.BATCH:
            parts.insert(0, columns.decode(value_words(rows, place.word, None), None, rows.heap, BIGINT))
    else:
        overflowed = valid.mask(place.bit2)
        # An overflowed sum is no decimal of 38 digits any more; its digits mean nothing.
        words = np.where(overflowed[:, None], 0, rows.words[:, place.word : place.word + 2])
        wide = DataType(f"decimal(38,{place.type.scale})")
        parts = [columns.decode(words, None, rows.heap, wide), pa.array(overflowed)]
    mask = None if present is None else pa.array(~present)
    return pa.StructArray.from_arrays(parts, fields=list(target), mask=mask)


def from_section(batch: pa.RecordBatch, layout: RecordLayout) -> Rows:
    """The records of a section, ready to be put into a table."""
    builder = RowsBuilder(len(batch), layout)
    _put_keys(builder, batch, layout)
    for place, array in zip(layout.accumulators, batch.columns[2 + len(layout.keys) :], strict=True):
        _put_accumulator(builder, array, place)
    return builder.finish()


def keys_of(batch: pa.RecordBatch, layout: RecordLayout) -> Rows:
    """The keys of a section, by ``layout.of_keys``."""
    builder = RowsBuilder(len(batch), layout.of_keys)
    _put_keys(builder, batch, layout)
    return builder.finish()


def without_values(batch: pa.RecordBatch, layout: RecordLayout) -> np.ndarray:
    """Which records of a section hold no accumulator."""
    empty = np.ones(len(batch), bool)
    for array in batch.columns[2 + len(layout.keys) :]:
        empty &= array.is_null().to_numpy(zero_copy_only=False)
    return empty


def _put_keys(builder: RowsBuilder, batch: pa.RecordBatch, layout: RecordLayout) -> None:
    builder.words[:, HASH] = columns.fixed_words(batch.column(0), BIGINT, None)
    builder.words[:, PANE] = columns.fixed_words(batch.column(1), BIGINT, None)
    for key, array in zip(layout.keys, batch.columns[2:], strict=False):
        builder.put(array, key.type, key.word, key.bit)


def _put_accumulator(builder: RowsBuilder, array: pa.Array, place: AccumulatorWords) -> None:
    if not pa.types.is_struct(array.type):
        builder.put(array, place.type, place.word, place.bit)
        return
    present = columns.valid_mask(array)
    builder.set_bit(place.bit, present)
    parts = array.flatten()  # children with the struct's own nulls applied
    if place.merge is Merge.MOMENTS:
        for i, part in enumerate(parts):
            builder.words[:, place.word + i] = columns.fixed_words(part, DOUBLE, present)
    elif place.merge is Merge.BATCH:
        builder.put(parts[0], place.type, place.word, place.bit2)
    elif place.merge in (Merge.FIRST, Merge.LAST):
        builder.words[:, place.word] = columns.fixed_words(parts[0], BIGINT, present)
        builder.put(parts[1], place.type, place.value_word, place.bit2)
    else:
        wide = DataType(f"decimal(38,{place.type.scale})")
        builder.words[:, place.word : place.word + 2] = columns.fixed_words(parts[0], wide, present)
        overflowed = columns.fixed_words(parts[1], DataType("boolean"), columns.valid_mask(parts[1]))
        builder.words[:, VALID] |= overflowed << place.bit2


def spread_section(rows: Spread, layout: RecordLayout, order: np.ndarray | None = None) -> pa.RecordBatch:
    """As ``sections.to_section``, of rows that are kept raw."""
    arrays = [pa.array(rows.word(word, order)) for word in (HASH, PANE)]
    bits = rows.word(VALID, order)
    places: tuple[KeyWords | AccumulatorWords, ...] = (*layout.keys, *layout.accumulators)
    arrays += [rows.column(place, order, bits, large=True) for place in places]
    return pa.RecordBatch.from_arrays(arrays, schema=section_schema(layout))
