"""Rows of one side that wait for a first match, until none can come any more: what an outer join adds to an inner one.

Invariants
- A row that finds no match in the epoch in which it comes is kept here once more, whole, in the pane of its expiry (see
  ``times``), on the append store for aligned windows: so rows that expire are read without a look at others.
- A match that comes later leaves a mark beside it: a row of the same key, pane and number that says the other side.
  Nothing kept is ever changed, so undo, restore and compaction are those of the store.
- Numbers distinguish rows of one hash: epoch and place in it. Here those of right rows, and of their marks, are
  negative (``~number``), so that sections of both sides can lie together.
- A row leaves in the one epoch in which the watermark passes its expiry: emitted if it has no mark.

Threads: one at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tailrace.operators.ingest.frame import by_shard
from tailrace.operators.join.spec import RIGHT, JoinSpec
from tailrace.operators.join.times import NEVER, JoinTimes, pane_end
from tailrace.operators.resources import Resources
from tailrace.operators.rows.row_stores import pane_store
from tailrace.state.append.list_sections import tombstones
from tailrace.state.layout import HASH, PANE, VALID, RecordLayout
from tailrace.state.rows.rows import Rows

_BITS_MIN, _BITS_MAX, _BITS_UNKNOWN = 14, 26, 24
_PANES_BITS = 8
"""A pane is about one part in 2 ** 8 of the time that rows wait: of those that are read and still wait, as many."""


class Unmatched:
    def __init__(
        self,
        spec: JoinSpec,
        times: JoinTimes,
        layout: RecordLayout,
        shards: Iterable[int],
        resources: Resources,
        side: int,
    ) -> None:
        self.store = pane_store(layout, shards, spec.shards, resources)
        self._layout = layout
        self._shards = spec.shards
        self._times = times
        self._side, self._number = layout.accumulators[0], layout.accumulators[-1]
        self._own = side
        life = spec.life(side)
        self._bits = _BITS_UNKNOWN
        if life is not None:
            self._bits = min(max(abs(life).bit_length() - _PANES_BITS, _BITS_MIN), _BITS_MAX)

    def append(self, epoch: int, waiting: Rows, matched: Sequence[Rows]) -> None:
        """Open the epoch with new rows that wait, and with rows of earlier epochs that have a match now."""
        parts = [self._placed(waiting), *(self._marks(rows) for rows in matched)]
        self.store.append(epoch, [by_shard(part, self._shards).parts() for part in parts if len(part)])

    def _placed(self, rows: Rows) -> Rows:
        """Those that will ever leave, in their panes."""
        expiry = self._times.moments(rows, self._own).expiry
        ends = np.flatnonzero(expiry != NEVER)
        words = rows.words[ends]
        words[:, PANE] = pane_end(expiry[ends], self._bits)
        if self._own == RIGHT:
            words[:, self._number.word] = ~words[:, self._number.word]
        return Rows(words, rows.heap)

    def _marks(self, rows: Rows) -> Rows:
        placed = self._placed(rows)
        marks = tombstones(placed, self._layout)
        marks.words[:, self._side.word] = 1 - self._own
        marks.words[:, self._number.word] = placed.words[:, self._number.word]
        marks.words[:, VALID] |= 1 << self._side.bit | 1 << self._number.bit
        return marks

    def eviction(self, watermark: int) -> Iterator[tuple[Rows, np.ndarray]]:
        """Rows, and the numbers of those that expire between the last watermark and this one, and have no match."""
        since = self.store.horizon
        for rows in self.store.read(since, watermark + (1 << self._bits)):
            is_mark = rows.words[:, self._side.word] != self._own
            expiry = self._times.moments(rows, self._own).expiry
            leaves = ~is_mark & (expiry >= since) & (expiry < watermark)
            leaves[leaves] = ~self._marked(rows, np.flatnonzero(leaves), np.flatnonzero(is_mark))
            yield rows, np.flatnonzero(leaves)

    def _marked(self, rows: Rows, asked: np.ndarray, marks: np.ndarray) -> np.ndarray:
        """Which of the rows ``asked`` have one of the marks."""
        both = np.concatenate([marks, asked])
        hashes, numbers = rows.words[both, HASH], rows.words[both, self._number.word]
        order = np.lexsort((numbers, hashes))  # stable: marks come before the row they belong to
        same = (np.diff(hashes[order]) == 0) & (np.diff(numbers[order]) == 0)
        after = np.concatenate([[False], same])
        marked = np.empty(len(both), bool)
        marked[order] = after
        return marked[len(marks) :]
