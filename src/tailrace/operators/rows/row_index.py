"""How many rows there are of each key and pane: a record for each, beside an append store for unaligned windows.

Invariants
- Records lie in a read-modify-write store with a budget of its own; both stores move together, epoch by epoch.
- Where keys are forgotten, a record also has when its key was last updated, see ``expiry``.
- Where they are of lists, by the same keys and panes, they are made of the rows, and the lists alone are checkpointed.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tailrace.operators.resources import Resources
from tailrace.operators.store_operator import record_store
from tailrace.state.hash_table.table import Table
from tailrace.state.layout import VALID, Merge, RecordLayout, record_layout
from tailrace.state.rows.rows import Rows
from tailrace.state.sections.sections import to_section
from tailrace.types import BIGINT, TIMESTAMP, Field

READ_ROWS_MAX = 1 << 17
"""Lists that are read together have about so many rows at most, but for a single one."""


class RowCounts:
    def __init__(
        self,
        keys: Sequence[Field],
        lists: RecordLayout,
        shards: Iterable[int],
        resources: Resources,
        *,
        expire: bool = False,
    ) -> None:
        self.layout = counts_layout(keys, expire=expire)
        self._lists = lists
        self._count = self.layout.accumulators[0]
        self.updated = self.layout.accumulators[1] if expire else None
        noted_word = None if self.updated is None else self.updated.word
        self.store = record_store(self.layout, shards, resources, noted_word=noted_word)

    def merge(self, epoch: int, frames: Sequence[tuple[Rows, np.ndarray]]) -> None:
        """Rows that were appended to lists."""
        self.store.merge(epoch, [(self.records(rows), bounds) for rows, bounds in frames])

    def records(self, rows: Rows, counts: np.ndarray | int = 1, times: np.ndarray | None = None) -> Rows:
        """For each row, what it (or so many like it) adds to its record. Keys lie in the same words in both layouts.

        ``times``: when their keys are updated by them.
        """
        words = np.empty((len(rows), self.layout.words), np.int64)
        words[:, : self._count.word] = rows.words[:, : self._count.word]
        words[:, VALID] &= self.layout.key_mask
        words[:, VALID] |= 1 << self._count.bit
        words[:, self._count.word] = counts
        if self.updated is not None:
            assert times is not None
            words[:, self.updated.word] = times
            words[:, VALID] |= 1 << self.updated.bit
        return Rows(words, rows.heap)

    def counts(self, records: Rows) -> np.ndarray:
        """How many rows these records have counted."""
        counts: np.ndarray = records.words[:, self._count.word]
        return counts

    def targets(self, records: Rows) -> Rows:
        """The lists of these records, as rows that name them."""
        words = np.zeros((len(records), self._lists.words), np.int64)
        words[:, : self._count.word] = records.words[:, : self._count.word]
        words[:, VALID] &= self._lists.key_mask
        return Rows(words, records.heap)

    def changed(self) -> Iterator[Rows]:
        """The records that the newest epoch has changed."""
        for _, table, rows in self.store.changes.in_tables():
            yield table.copy(rows)

    def restore(self, shard: int, rows: Rows, horizon: int) -> None:
        """Build a shard from the rows of its lists."""
        table = Table(self.layout, rows_expected=len(rows))
        table.begin(len(rows))
        records = self.records(rows)
        table.merge(records.words, records.heap, 0, len(records))
        self.store.restore(shard, [to_section(table.copy(table.changed_rows()), self.layout)], horizon)


def counts_layout(keys: Sequence[Field], *, expire: bool) -> RecordLayout:
    values = [(Merge.ADD, BIGINT), *([(Merge.MAX, TIMESTAMP)] if expire else [])]
    return record_layout(keys, values, ansi=False)


def pieces(sizes: np.ndarray, edges: np.ndarray | None = None, at_most: int | None = None) -> Iterator[slice]:
    """Lists of these sizes cut to pieces that can be read at once; with ``edges``, also at these (ascending) places."""
    most = READ_ROWS_MAX if at_most is None else at_most
    before = np.concatenate([[0], np.cumsum(sizes)])
    cuts = [*([] if edges is None else edges.tolist()), len(sizes)]
    low = 0
    for cut in cuts:
        while low < cut:
            high = int(np.searchsorted(before, before[low] + most, side="right")) - 1
            high = min(max(high, low + 1), cut)
            yield slice(low, high)
            low = high
