"""When the records of a user's function have to be looked at: by their timer, or because they may have expired.

Invariants
- Of two words of a record one, ``value``, says when it is due (null: never), and the other, ``hint``, where its entry
  among the deadlines lies: never after ``value``, and ``NEVER`` where it has none. Entries that no record names are
  stale: of a record that went, or whose time was moved forward. They are dropped when they come up.
- A time that is moved back costs nothing: the entry stays, and when it comes up the record gets a new one. So there is
  one entry for each record, and a stale one for each time that was moved forward until it comes up; looking at records
  costs what was written and what is due.
- The hint is part of the record: undoing, deltas and restoring keep it right.

Threads: one call at a time.
"""

from __future__ import annotations

import numpy as np

from tailrace.operators.ingest.frame import by_shard
from tailrace.operators.resources import Resources
from tailrace.operators.timers.record_timers import Waiting
from tailrace.state.hash_table.table import Table
from tailrace.state.layout import HASH, VALID, AccumulatorWords
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows.rows import Rows, concat_rows

NEVER = 2**63 - 1


class Hints(Waiting):
    def __init__(
        self,
        store: ReadModifyWriteStore,
        value: AccumulatorWords,
        hint: AccumulatorWords,
        shard_count: int,
        resources: Resources,
    ) -> None:
        super().__init__(store, shard_count, resources)
        self._value, self._hint = value, hint

    def due(self, epoch: int, until: int) -> list[tuple[int, np.ndarray]]:
        """(shard, row numbers) of the records whose time is at or before ``until``, in memory now."""
        found: list[tuple[int, np.ndarray]] = []
        moved: list[Rows] = []
        tables = dict(self._store.tables())
        for shard, hashes in self._come_up(epoch, until):
            rows, _ = self._store.with_hashes(shard, hashes, lambda words: words[:, self._hint.word] <= until)
            values = self._values(tables[shard].words(rows))
            due = values <= until
            if due.any():
                found.append((shard, rows[due]))
            if not due.all():
                later = tables[shard].copy(rows[~due])
                later.words[:, self._hint.word] = values[~due]
                moved.append(later)
        if moved:
            rows_moved = concat_rows(moved, self._store.layout)
            self._put(rows_moved.words[:, self._hint.word], rows_moved.words[:, HASH])
            frame = by_shard(rows_moved, self._shard_count)
            self._store.merge_more([frame.parts()], replace=True, fresh=True, hold=False)
        return found

    def note(self, rows: Rows, before: np.ndarray) -> None:
        """Fill in the hints of new records. ``before``: those that their keys had, ``NEVER`` where none."""
        values = self._values(rows.words)
        earlier = values < before
        rows.words[:, self._hint.word] = np.where(earlier, values, before)
        rows.words[:, VALID] |= 1 << self._hint.bit
        self._put(values[earlier], rows.words[earlier, HASH])

    def restore(self, shard: int, table: Table) -> None:
        """The entries of a shard that was loaded."""
        rows = table.all_rows()
        times = table.word(rows, self._hint.word)
        there = times != NEVER
        self.deadlines.restore(shard, times[there], table.word(rows[there], HASH))

    def _put(self, times: np.ndarray, hashes: np.ndarray) -> None:
        there = times != NEVER
        self.deadlines.put(times[there], hashes[there])

    def _values(self, words: np.ndarray) -> np.ndarray:
        there = words[:, VALID] >> self._value.bit & 1 == 1
        return np.where(there, words[:, self._value.word], NEVER)
