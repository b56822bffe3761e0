"""Whole sessions of one shard where some of their records may lie on disk: copies of them, in a table of their own.

Invariants
- The table holds copies: nothing of the state changes before ``remove``, and then only the records that were asked for,
  each where it lies. So sessions that end take no room in the store's own table.
- A record is copied once. Its number in the table is the place at which it was added.
- Looking further costs a look at every record of the sessions asked for, and at most as many again.

Threads: one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tailrace.state.hash_table.table import Table
from tailrace.state.layout import PANE
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows.rows import Rows
from tailrace.state.segments.spilled_records import FoundRecords

_STEPS_MAX = 64


class SpilledSessions:
    """``gap``: of the sessions, and the width of panes. ``low`` and ``high``: words of the first and last time."""

    def __init__(self, store: ReadModifyWriteStore, shard: int, gap: int, low: int, high: int) -> None:
        self.table = Table(store.layout)
        self.table.begin(0)
        self._store = store
        self._shard = shard
        self._own = dict(store.tables())[shard]
        self._gap, self._low, self._high = gap, low, high
        self._count = 0
        self._hot: list[tuple[int, np.ndarray]] = []  # first number, and rows of the store's table
        self._spilled: list[tuple[int, FoundRecords]] = []

    def add_rows(self, rows: np.ndarray) -> np.ndarray:
        """Copy records of the store's table, by row number: their numbers here."""
        self._hot.append((self._count, rows))
        return self._add(self._own.copy(rows))

    def add_found(self, found: FoundRecords) -> np.ndarray:
        """Records on disk: their numbers here."""
        self._spilled.append((self._count, found))
        return self._add(found.rows)

    def _add(self, rows: Rows) -> np.ndarray:
        self.table.merge(rows.words, rows.heap, 0, len(rows), replace=True)
        first, self._count = self._count, self._count + len(rows)
        assert self.table.rows == self._count, "a record was added twice"
        return np.arange(first, self._count)

    def ended(self, due: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The records of the sessions that end with one of the ``due``, and their offsets: see ``Table.sessions``."""
        self._look(due, np.array([1]))
        ends = due[~self._goes_on(due)]
        self._follow(ends, -1)
        return self.table.sessions(ends, self._gap, self._low, self._high, ended=True)

    def around(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The records of the sessions that these records are of."""
        self._follow(rows, 1)
        self._follow(rows, -1)
        return self.table.sessions(rows, self._gap, self._low, self._high, ended=False)

    def remove(self, epoch: int, rows: np.ndarray) -> None:
        """Take these records out of the state, as part of the open epoch."""
        rows = np.sort(rows)
        for first, own in self._hot:
            self._store.remove(self._shard, own[_between(rows, first, len(own))])
        for first, found in self._spilled:
            chosen = _between(rows, first, len(found.at))
            if len(chosen):
                self._store.spilled.remove_found(epoch, found, chosen)

    def _goes_on(self, rows: np.ndarray) -> np.ndarray:
        """Whether the session of each record has another one in the next pane."""
        after = self.table.locate(self._shifted(self.table.copy(rows), np.array([1])))
        there = after >= 0
        goes_on = np.zeros(len(rows), bool)
        low, high = self.table.word(after[there], self._low), self.table.word(rows[there], self._high)
        goes_on[there] = low - high <= self._gap
        return goes_on

    def _follow(self, rows: np.ndarray, direction: int) -> None:
        """Copy the records of the same keys in the panes after or before these, as far as there is one in each."""
        steps = 1
        frontier = self.table.copy(rows)
        while len(frontier):
            wanted = self._shifted(frontier, direction * np.arange(1, steps + 1))
            self._fetch(wanted)
            farthest = np.ascontiguousarray(wanted.words[steps - 1 :: steps])
            there = self.table.locate(Rows(farthest, wanted.heap)) >= 0
            frontier = Rows(farthest[there], wanted.heap)
            steps = min(2 * steps, _STEPS_MAX)

    def _look(self, rows: np.ndarray, shifts: np.ndarray) -> None:
        self._fetch(self._shifted(self.table.copy(rows), shifts))

    def _fetch(self, wanted: Rows) -> None:
        """Copy the records with these keys and panes that are not here yet, wherever they lie."""
        missing = Rows(wanted.words[self.table.locate(wanted) < 0], wanted.heap)
        at = self._own.locate(missing)
        hot = np.unique(at[at >= 0])
        if len(hot):
            self.add_rows(hot)
        for found in self._store.spilled.find(self._shard, missing, np.flatnonzero(at < 0), self._store.horizon):
            self.add_found(found)

    def _shifted(self, rows: Rows, shifts: np.ndarray) -> Rows:
        """Each row so many times, in panes so far on: those of one row together."""
        words = np.repeat(rows.words, len(shifts), axis=0)
        words[:, PANE] += np.tile(shifts * self._gap, len(rows))
        return Rows(words, rows.heap)


def _between(rows: np.ndarray, first: int, count: int) -> np.ndarray:
    """Those of the ascending numbers that are one of ``count`` from ``first`` on, counted from there."""
    low, high = np.searchsorted(rows, [first, first + count])
    return rows[low:high] - first


def hash_pieces(hashes: np.ndarray, at_most: int) -> Iterator[np.ndarray]:
    """Numbers of hashes in pieces of about ``at_most``; those of one hash are in one piece."""
    if len(hashes) <= at_most:
        yield np.arange(len(hashes))
        return
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    low = 0
    while low < len(order):
        high = min(low + at_most, len(order))
        high = int(np.searchsorted(ordered, ordered[high - 1], side="right"))
        yield order[low:high]
        low = high
