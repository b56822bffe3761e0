"""Sections of the unaligned store: rows and tombstones, in order.

The schema is ``__gone, __trigger`` and then that of ``sections``. Where ``__gone`` is set, the row is a tombstone: the
list that it names (hash, pane and keys; its values are null) loses the rows that come before it, in this section and in
earlier ones, and none that comes after. ``__trigger`` is the time at which the row's list is expected to be read, null
where none is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.state.append.list_runs import UNKNOWN, list_order
from tailrace.state.layout import PANE, VALID, RecordLayout
from tailrace.state.rows import columns
from tailrace.state.rows.arrange import Slices, arrange, take
from tailrace.state.rows.gather import Spread
from tailrace.state.rows.groups import key_offsets
from tailrace.state.rows.rows import Rows, concat_rows, no_rows
from tailrace.state.sections import sections
from tailrace.types import BIGINT

_OWN = (pa.field("__gone", pa.bool_()), pa.field("__trigger", pa.int64()))


def section_schema(layout: RecordLayout) -> pa.Schema:
    return pa.schema([*_OWN, *sections.section_schema(layout)])


@dataclass(frozen=True)
class Entries:
    """Rows and tombstones in order."""

    rows: Rows
    gone: np.ndarray  # bool[n]
    triggers: np.ndarray  # int64[n]

    def __len__(self) -> int:
        return len(self.rows)


def to_section(entries: Entries, layout: RecordLayout) -> pa.RecordBatch:
    return _with_own(sections.to_section(entries.rows, layout), entries.gone, entries.triggers, layout)


def spread_section(
    rows: Spread, order: np.ndarray, gone: np.ndarray, triggers: np.ndarray, layout: RecordLayout
) -> pa.RecordBatch:
    """Of rows and tombstones in this order; ``gone`` and ``triggers`` are in it already."""
    return _with_own(sections.spread_section(rows, layout, order), gone, triggers, layout)


def _with_own(plain: pa.RecordBatch, gone: np.ndarray, triggers: np.ndarray, layout: RecordLayout) -> pa.RecordBatch:
    own = [pa.array(gone, pa.bool_()), pa.array(triggers, pa.int64(), mask=triggers == UNKNOWN)]
    return pa.RecordBatch.from_arrays([*own, *plain.columns], schema=section_schema(layout))


def from_section(batch: pa.RecordBatch, layout: RecordLayout) -> Entries:
    plain = pa.RecordBatch.from_arrays(batch.columns[2:], schema=sections.section_schema(layout))
    known = columns.valid_mask(batch.column(1))
    triggers = columns.fixed_words(batch.column(1), BIGINT, None)
    gone = np.asarray(batch.column(0).to_numpy(zero_copy_only=False), bool)
    triggers = triggers if known is None else np.where(known, triggers, UNKNOWN)
    return Entries(sections.from_section(plain, layout), gone, triggers)


def applied(layout: RecordLayout, batches: Sequence[pa.RecordBatch], horizon: int, *, keep_tombstones: bool) -> Entries:
    """What is left of sections, oldest first: list by list, the tombstone (where kept) before the rows."""
    parts = [from_section(batch, layout) for batch in batches]
    parts = [part for part in parts if len(part)]
    if not parts:
        return Entries(no_rows(layout), np.empty(0, bool), np.empty(0, np.int64))
    gone, triggers = (np.concatenate([getattr(part, name) for part in parts]) for name in ("gone", "triggers"))
    rows = concat_rows([part.rows for part in parts], layout)
    numbers = np.flatnonzero(rows.words[:, PANE] >= horizon)
    keys = list_order(rows, 1, 1)[numbers]
    arranged = arrange([Slices(rows, numbers, numbers + 1)], keys, layout, exact=True, with_pane=True)
    numbers = numbers[arranged.order]
    if not len(numbers):
        return Entries(arranged.rows, np.empty(0, bool), np.empty(0, np.int64))
    edges = key_offsets(arranged.rows, layout, with_pane=True)
    # In a list, rows are in order of arrival: the place of its last tombstone decides.
    places = np.arange(len(numbers))
    last = np.maximum.reduceat(np.where(gone[numbers], places, -1), edges[:-1])
    last = np.repeat(last, np.diff(edges))
    stay = places > last
    if keep_tombstones:
        stay |= places == last
    chosen = np.flatnonzero(stay)
    return Entries(take(arranged.rows, chosen, layout), gone[numbers][chosen], triggers[numbers][chosen])


def tombstones(targets: Rows, layout: RecordLayout) -> Rows:
    """Rows that name lists: keys as they are, every value null."""
    words = targets.words.copy()
    words[:, VALID] &= layout.key_mask
    if layout.accumulators:
        words[:, layout.accumulators[0].word :] = 0
    return Rows(words, targets.heap)
