"""Which records of a table are evicted: by the store's cache policy, in the coarse time of epochs.

All rows of an epoch are applied at one moment, so the time of an access is that of the epoch's log: its stamp, which
every record has for undoing anyway. ``timestamp`` and ``lru`` evict the smallest stamps; they differ in hinted records,
which ``timestamp`` evicts last. With ``clock`` a record is marked while its stamp is newer than the one that the hand
has seen.

Threads: one at a time, as for the table.
"""

from __future__ import annotations

import numpy as np

from tailrace.state.cache.policies import Clock, smallest

_NOT_HINTED = -(2**62)


class EvictionPolicy:
    def __init__(self, policy: str) -> None:
        self._clock = Clock() if policy == "clock" else None
        self._by_hints = policy == "timestamp"
        self._seen = np.empty(0, np.int64)  # by row: the stamp that the hand has seen
        self._hinted = np.empty(0, np.int64)  # by row: the epoch that will use it

    @property
    def nbytes(self) -> int:
        return self._seen.nbytes + self._hinted.nbytes

    def hint(self, rows: np.ndarray, epoch: int, room: int) -> None:
        """Records that ``epoch`` will use. ``room``: how many rows the table has room for."""
        if self._by_hints:
            if len(self._hinted) < room:
                grown = np.full(room, _NOT_HINTED, np.int64)
                grown[: len(self._hinted)] = self._hinted
                self._hinted = grown
            self._hinted[rows] = epoch

    def choose(self, rows: np.ndarray, stamps: np.ndarray, count: int, epoch: int, room: int) -> np.ndarray:
        """Up to ``count`` of these records, in their order. ``epoch``: the newest that was applied."""
        if count >= len(rows):
            return rows
        if self._clock is not None:
            going = self._swept(rows, stamps, count, room)
        elif len(self._hinted):
            known = rows < len(self._hinted)
            ahead = np.zeros(len(rows), bool)
            ahead[known] = self._hinted[rows[known]] > epoch
            # Hinted records are evicted after everything else.
            going = smallest(np.where(ahead, stamps + 2**62, stamps), np.ones(len(rows), bool), count)
        else:
            going = smallest(stamps, np.ones(len(rows), bool), count)
        eviction: np.ndarray = rows[going]
        return eviction

    def moved(self, stays: np.ndarray) -> None:
        """The table's rows have new numbers: those of ``stays``, a mask, moved together."""
        if self._clock is not None:
            self._clock.renumbered(np.flatnonzero(stays))
        self._seen, self._hinted = (
            part[: len(stays)][stays[: len(part)]] if len(part) else part for part in (self._seen, self._hinted)
        )

    def _swept(self, rows: np.ndarray, stamps: np.ndarray, count: int, room: int) -> np.ndarray:
        """Positions in ``rows`` of the records that the hand takes."""
        assert self._clock is not None
        if len(self._seen) < room:
            self._seen = np.concatenate([self._seen, np.zeros(room - len(self._seen), np.int64)])
        newest, place = np.zeros(room, np.int64), np.full(room, -1, np.int64)
        newest[rows], place[rows] = stamps, np.arange(len(rows))
        may_go = place >= 0
        marks = (newest > self._seen).astype(np.int64)
        marked = marks == 1
        going = self._clock.victims(marks, may_go, count)
        cleared = marked & (marks == 0)
        self._seen[cleared] = newest[cleared]
        return np.sort(place[going])
