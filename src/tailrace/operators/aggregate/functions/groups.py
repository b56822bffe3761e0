"""Columns of groups of rows, for aggregates that look at values: without nulls, and as lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.operators.rows.groups import Groups
from tailrace.state.hash_table.table import Table
from tailrace.state.layout import HASH, Merge, record_layout
from tailrace.state.rows import columns
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.sections.sections import ValidBits, value_words
from tailrace.types import BIGINT, DataType, Field, Kind

_KEY_BITS = 62


def present_values(groups: Groups, column: str, *beside: str) -> Any:
    """The values that are not null, the numbers of their groups, and the same rows of other columns."""
    values, numbers = groups.columns[column], groups.numbers
    others = [groups.columns[name] for name in beside]
    if values.null_count == 0:
        return values, numbers, *others
    there = pc.is_valid(values)
    numbers = numbers[np.asarray(there.to_numpy(zero_copy_only=False), bool)]
    return values.filter(there), numbers, *(other.filter(there) for other in others)


def grouped_order(numbers: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Rows by group and then by rank. What is sorted in runs already, as sets that are merged, takes one pass."""
    if not len(ranks):
        return np.empty(0, np.int64)
    least = int(ranks.min())
    width = (int(ranks.max()) - least).bit_length()
    if width + int(numbers.max()).bit_length() <= _KEY_BITS:
        return np.argsort((numbers << width) | (ranks - least), kind="stable")
    return np.lexsort((ranks, numbers))


def lists(values: pa.Array, counts: np.ndarray) -> pa.Array:
    """Lists of so many of the values each."""
    offsets = np.concatenate([[0], np.cumsum(counts)])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise OverflowError(f"lists of {offsets[-1]:,} values in one batch: at most 2,147,483,647 fit")
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)


def sums(
    values: pa.Array, numbers: np.ndarray, groups: int, given: DataType, total: DataType, *, ansi: bool
) -> pa.Array:
    """The sum of the values of each group, as records add them: with the same overflows. Null where there are none."""
    layout = record_layout([Field("group", BIGINT)], [(Merge.ADD, total)], ansi)
    (key,), (place,) = layout.keys, layout.accumulators
    builder = RowsBuilder(len(values), layout)
    builder.words[:, HASH] = builder.words[:, key.word] = numbers
    builder.set_bit(key.bit, None)
    builder.set_bit(place.bit, None)
    if place.kind is Kind.FLOAT64:
        builder.words[:, place.word] = columns.double_words(values, given, None)
    elif place.kind is Kind.INT128 and given.kind is not Kind.INT128:
        low = columns.fixed_words(values, given, None)
        builder.words[:, place.word], builder.words[:, place.word + 1] = low, low >> 63
    else:
        builder.put(values, given, place.word, place.bit)
    table = Table(layout, rows_expected=groups)
    table.begin(len(values))
    rows = builder.finish()
    table.merge(rows.words, rows.heap, 0, len(rows))
    made = table.copy(table.changed_rows())
    valid = ValidBits(made)
    present = valid.mask(place.bit) if place.bit2 < 0 else valid.mask(place.bit) & ~valid.mask(place.bit2)
    found = columns.decode(value_words(made, place.word, place.kind), present, made.heap, total)
    at = np.full(groups, -1, np.int64)
    at[made.words[:, key.word]] = np.arange(len(made))
    return found.take(pa.array(at, mask=at < 0))
