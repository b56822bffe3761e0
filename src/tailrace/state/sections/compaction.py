"""Several sections of a shard become one that stands for them: of each key what the newest that has it says.

Values stay as they are: keys alone are looked at, and the rows that stay are copied as Arrow columns.

Threads: pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tailrace.state.layout import PANE, RecordLayout
from tailrace.state.rows.columns import fixed_words
from tailrace.state.rows.groups import key_numbers
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.state.sections import sections
from tailrace.types import BIGINT

_NO_PANES = np.empty(0, np.int64)


def compact_records(
    layout: RecordLayout, batches: Sequence[pa.RecordBatch], horizon: int, *, bury: bool = False
) -> pa.RecordBatch:
    """Of sections, oldest first, the newest value of each record that the horizon leaves.

    Tombstones stay, as records without a value: an older section may hold what they take away. With ``bury`` none is
    older, and they go. In one section a record that is there again comes after its own.
    """
    panes = np.concatenate([_NO_PANES, *(fixed_words(batch.column("__pane"), BIGINT, None) for batch in batches)])
    stays = panes >= horizon
    if len(batches) > 1:  # else each record is there once, but for its own tombstone before it
        keys = _keys(batches, layout)
        numbers, firsts = key_numbers(keys, layout)
        newest = np.zeros(len(keys), bool)
        newest[_newest(numbers, np.arange(len(keys)), len(firsts))] = True
        stays &= newest
    if bury:
        stays &= ~_without_values(batches, layout)
    return _those(batches, stays, layout)


def compact_lists(
    layout: RecordLayout, batches: Sequence[pa.RecordBatch], horizon: int, *, removes: bool, bury: bool = False
) -> pa.RecordBatch:
    """As ``compact_records``, where a key may have several rows in a section: those of the newest stay, in their order.

    A section is one batch, however it was cut when it was written.
    ``removes``: rows without a value are tombstones; a key that is there again has rows beside its own.
    """
    keys = _keys(batches, layout)
    numbers, firsts = key_numbers(keys, layout)
    section = np.repeat(np.arange(len(batches)), np.array([len(batch) for batch in batches], np.int64))
    newest = section == _newest(numbers, section, len(firsts))[numbers]
    if not removes:
        return _those(batches, newest & (keys.words[:, PANE] >= horizon), layout)
    tombs = _without_values(batches, layout)
    has_rows = np.zeros(len(firsts), bool)
    has_rows[numbers[newest & ~tombs]] = True
    stays = newest & ~(tombs & (has_rows[numbers] | bury))
    return _those(batches, stays & (keys.words[:, PANE] >= horizon), layout)


def _keys(batches: Sequence[pa.RecordBatch], layout: RecordLayout) -> Rows:
    return concat_rows([sections.keys_of(batch, layout) for batch in batches], layout.of_keys)


def _newest(numbers: np.ndarray, times: np.ndarray, count: int) -> np.ndarray:
    """The largest time of each number; times ascend."""
    newest = np.zeros(count, np.int64)
    np.maximum.at(newest, numbers, times)
    return newest


def _without_values(batches: Sequence[pa.RecordBatch], layout: RecordLayout) -> np.ndarray:
    return np.concatenate([np.empty(0, bool), *(sections.without_values(batch, layout) for batch in batches)])


def _those(batches: Sequence[pa.RecordBatch], stays: np.ndarray, layout: RecordLayout) -> pa.RecordBatch:
    ends = np.cumsum([len(batch) for batch in batches])
    parts = [batch.filter(pa.array(stays[end - len(batch) : end])) for batch, end in zip(batches, ends, strict=True)]
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=sections.section_schema(layout))
    return pa.concat_batches(parts)
