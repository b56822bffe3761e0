"""Copies of records of one shard, in a table of their own, for who has to look at many before it changes any.

Invariants
- Nothing of the store changes before ``remove``, and then only the records that were asked for, each where it lies. So
  what is looked at, and removed, takes no room in the store's own table.
- A record is copied once. Its number here is the place at which it was added, and its row number in ``table``.

Threads: one at a time, and none beside a call that changes the store.
"""

from __future__ import annotations

import numpy as np

from tailrace.state.hash_table.table import Table
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows.rows import Rows
from tailrace.state.segments.spilled_records import FoundRecords


class RecordCopies:
    def __init__(self, store: ReadModifyWriteStore, shard: int) -> None:
        self.table = Table(store.layout)
        self.table.begin(0)
        self._store = store
        self._shard = shard
        self._own = dict(store.tables())[shard]
        self._count = 0
        self._in_memory: list[tuple[int, np.ndarray]] = []  # first number, and rows of the store's table
        self._spilled: list[tuple[int, FoundRecords]] = []

    def add_rows(self, rows: np.ndarray) -> np.ndarray:
        """Copy records of the store's table, by row number: their numbers here."""
        self._in_memory.append((self._count, rows))
        return self._add(self._own.copy(rows))

    def add_with_hashes(self, hashes: np.ndarray, panes: np.ndarray) -> np.ndarray:
        """Copy the records that have one of these hashes in the pane beside it: their numbers here."""
        numbers = [self.add_rows(np.unique(self._own.with_hashes(hashes, panes)))]
        once = np.unique(np.stack([hashes, panes], axis=1), axis=0)
        hashes, panes = (np.ascontiguousarray(part) for part in once.T)
        for found in self._store.spilled.with_hashes(self._shard, hashes, self._store.horizon, panes):
            numbers.append(self._add_found(found))
        return np.concatenate(numbers)

    def fetch(self, wanted: Rows) -> None:
        """Copy the records with these keys and panes that are not here yet."""
        missing = Rows(wanted.words[self.table.locate(wanted) < 0], wanted.heap)
        at = self._own.locate(missing)
        in_memory = np.unique(at[at >= 0])
        if len(in_memory):
            self.add_rows(in_memory)
        for found in self._store.spilled.find(self._shard, missing, np.flatnonzero(at < 0), self._store.horizon):
            self._add_found(found)

    def remove(self, numbers: np.ndarray) -> None:
        """Take these records out of the store, as part of the open epoch."""
        epoch = self._store.newest_epoch
        assert epoch is not None, "removing before any epoch was opened"
        numbers = np.sort(numbers)
        for first, rows in self._in_memory:
            self._store.remove(self._shard, rows[_between(numbers, first, len(rows))])
        for first, found in self._spilled:
            chosen = _between(numbers, first, len(found.at))
            if len(chosen):
                self._store.spilled.remove_found(epoch, found, chosen)

    def _add_found(self, found: FoundRecords) -> np.ndarray:
        self._spilled.append((self._count, found))
        return self._add(found.rows)

    def _add(self, rows: Rows) -> np.ndarray:
        self.table.merge(rows.words, rows.heap, 0, len(rows), replace=True)
        first, self._count = self._count, self._count + len(rows)
        assert self.table.rows == self._count, "a record was added twice"
        return np.arange(first, self._count)


def _between(numbers: np.ndarray, first: int, count: int) -> np.ndarray:
    """Those of the ascending numbers that are one of ``count`` from ``first`` on, counted from there."""
    low, high = np.searchsorted(numbers, [first, first + count])
    return numbers[low:high] - first
