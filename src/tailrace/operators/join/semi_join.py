"""Left semi joins of two streams whose rows meet as they come: left rows that have a match, each once (AUR).

Invariants, beside those of ``interval_join``
- A left row is emitted in the epoch of its first match. One that has a match in the epoch in which it comes is not
  kept. One that waits gets a mark when it is emitted: a row of the same key, pane and time, with the number
  ``~number``, in the same list. So whoever reads a list knows which of its rows were emitted before, and nothing that
  is kept is ever changed: a mark goes with its row, by the horizon.
- New left rows look among the kept right rows, and then among those of their own epoch, in a store that lasts as long.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from tailrace.operators.ingest.frame import by_shard
from tailrace.operators.join.interval_join import JoinRows
from tailrace.operators.join.probe import Found, Prober
from tailrace.operators.join.spec import LEFT, RIGHT, JoinSpec
from tailrace.operators.join.times import KnownPanes
from tailrace.operators.resources import Resources
from tailrace.operators.rows.row_stores import list_store
from tailrace.state.append.list_sections import tombstones
from tailrace.state.layout import HASH, PANE, VALID
from tailrace.state.rows.rows import Rows, concat_rows

_ALL_IN_MEMORY = 1 << 62
"""The rows of an epoch are in memory already."""


class SemiJoinRows(JoinRows):
    def __init__(self, spec: JoinSpec, shards: Iterable[int], resources: Resources) -> None:
        super().__init__(spec, shards, resources)
        self._folder = resources.folder
        self._side, self._time, self._number = (self._layout.accumulators[i] for i in (0, 1, -1))

    def _joined(self, epoch: int, rows: Rows, lefts: np.ndarray, rights: np.ndarray) -> list[pa.RecordBatch]:
        met = self._distinct([self._waiting(found) for found in self._prober.matches(rows, rights, RIGHT)])
        emitted = list(self._output.alone(met, np.arange(len(met))))
        single = np.ones(len(rows), bool)
        for found in self._prober.matches(rows, lefts, LEFT):
            single[found.source[found.at]] = False
        self._look_among(rows, rights, lefts[single[lefts]], single)
        emitted += self._output.alone(rows, lefts[~single[lefts]])
        kept = np.sort(np.concatenate([lefts[single[lefts]], rights]))
        self._keep(epoch, concat_rows([Rows(rows.words[kept], rows.heap), self._marks(met)], self._layout))
        return emitted

    def _look_among(self, rows: Rows, rights: np.ndarray, lefts: np.ndarray, single: np.ndarray) -> None:
        """Note in ``single`` which of the left rows have a match among these right ones."""
        if not len(lefts) or not len(rights):
            return
        fresh = Rows(rows.words[rights], rows.heap)
        known = KnownPanes()
        known.add(fresh.words[:, PANE])
        resources = Resources(_ALL_IN_MEMORY, self._folder, threads=1)
        store = list_store(self._layout, self.shards, self.spec.shards, resources)
        try:
            store.append(0, [by_shard(fresh, self.spec.shards).parts()])
            for found in Prober(store, self._times, known).matches(rows, lefts, LEFT):
                single[found.source[found.at]] = False
        finally:
            store.close()

    def _waiting(self, found: Found) -> Rows:
        """Of kept left rows that have a match, those that were not emitted before."""
        rows = found.kept_rows
        rows = Rows(rows.words[rows.words[:, self._number.word] >= 0], rows.heap)
        own = self._names(rows.words)
        marks = self._names(found.kept.words[found.kept.words[:, self._number.word] < 0])
        marks[:, 1] = ~marks[:, 1]
        _, numbers = np.unique(np.concatenate([marks, own]), axis=0, return_inverse=True)
        numbers = numbers.reshape(-1)
        return Rows(rows.words[~np.isin(numbers[len(marks) :], numbers[: len(marks)])], rows.heap)

    def _distinct(self, parts: Sequence[Rows]) -> Rows:
        rows = concat_rows(parts, self._layout)
        _, firsts = np.unique(self._names(rows.words), axis=0, return_index=True)
        return Rows(rows.words[firsts], rows.heap)

    def _names(self, words: np.ndarray) -> np.ndarray:
        """What distinguishes rows."""
        return np.stack([words[:, HASH], words[:, self._number.word]], axis=1)

    def _marks(self, rows: Rows) -> Rows:
        marks = tombstones(rows, self._layout)
        marks.words[:, self._time.word] = rows.words[:, self._time.word]
        marks.words[:, self._number.word] = ~rows.words[:, self._number.word]
        for place in (self._side, self._time, self._number):
            marks.words[:, VALID] |= 1 << place.bit
        return marks
