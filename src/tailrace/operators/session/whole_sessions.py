"""Whole sessions of one shard, put together from copies of their records (see ``RecordCopies``).

Looking further costs a look at every record of the sessions asked for, and at most as many again.

Threads: one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tailrace.state.layout import PANE
from tailrace.state.read_modify_write.record_copies import RecordCopies
from tailrace.state.rows.rows import Rows

_STEPS_MAX = 64


class WholeSessions:
    """``gap``: of the sessions, and the width of panes. ``low`` and ``high``: words of the first and last time."""

    def __init__(self, copies: RecordCopies, gap: int, low: int, high: int) -> None:
        self.copies = copies
        self.table = copies.table
        self._gap, self._low, self._high = gap, low, high

    def ended(self, due: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The records of the sessions that end with one of the ``due``, and their offsets: see ``Table.sessions``."""
        self.copies.fetch(self._shifted(self.table.copy(due), np.array([1])))
        ends = due[~self._goes_on(due)]
        self._follow(ends, -1)
        return self.table.sessions(ends, self._gap, self._low, self._high, ended=True)

    def around(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The records of the sessions that these records are of."""
        self._follow(rows, 1)
        self._follow(rows, -1)
        return self.table.sessions(rows, self._gap, self._low, self._high, ended=False)

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
            self.copies.fetch(wanted)
            farthest = np.ascontiguousarray(wanted.words[steps - 1 :: steps])
            there = self.table.locate(Rows(farthest, wanted.heap)) >= 0
            frontier = Rows(farthest[there], wanted.heap)
            steps = min(2 * steps, _STEPS_MAX)

    def _shifted(self, rows: Rows, shifts: np.ndarray) -> Rows:
        """Each row so many times, in panes so far on: those of one row together."""
        words = np.repeat(rows.words, len(shifts), axis=0)
        words[:, PANE] += np.tile(shifts * self._gap, len(rows))
        return Rows(words, rows.heap)


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
