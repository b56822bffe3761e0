"""Entries numbered in the order in which they came, found by a 64-bit id.

Invariants
- An id has at most one living entry. A number stays with its entry until ``compact``, which keeps the order.
- What others keep of an entry lies in arrays of their own, by number; ``room`` says how long these must be.

Threads: none of its own; the owner has a lock.
"""

from __future__ import annotations

import numpy as np

from tailrace.state.cache import id_kernels as ik

_FIRST_ROOM = 64
_INDEX_SLOTS = 4
"""Index slots for each entry that there is room for: half of it at most are taken, by the dead too."""
ENTRY_BYTES = 8 + 1 + 8 * _INDEX_SLOTS
"""Bytes of memory for each entry that there is room for."""


class IdTable:
    def __init__(self) -> None:
        self.ids = np.empty(_FIRST_ROOM, np.int64)
        self.alive = np.zeros(_FIRST_ROOM, bool)
        self._index = np.full(_INDEX_SLOTS * _FIRST_ROOM, ik.EMPTY, np.int64)
        self.end = 0
        self._dead = 0

    def __len__(self) -> int:
        return self.end - self._dead

    @property
    def room(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        return self.end * ENTRY_BYTES

    @property
    def dead(self) -> int:
        """Entries that are gone and still have a number."""
        return self._dead

    def find(self, ids: np.ndarray) -> np.ndarray:
        """The number of each id's entry, -1 where there is none."""
        out = np.empty(len(ids), np.int64)
        ik.find(np.ascontiguousarray(ids, np.int64), self._index, self.ids, self.alive, out)
        return out

    def add(self, ids: np.ndarray) -> np.ndarray:
        """The number of each id's entry, a new one where there was none."""
        while self.end + len(ids) > self.room:
            self._grow()
        out = np.empty(len(ids), np.int64)
        self.end = int(ik.add(np.ascontiguousarray(ids, np.int64), self._index, self.ids, self.alive, self.end, out))
        return out

    def drop(self, numbers: np.ndarray) -> None:
        """Entries, each named once, are gone."""
        self._dead += int(self.alive[numbers].sum())
        self.alive[numbers] = False

    def rename(self, numbers: np.ndarray, ids: np.ndarray) -> None:
        """Living entries, each named once, have these ids from now on, which no entry has yet."""
        if len(numbers):
            self.ids[numbers] = ids
            ik.rebuild(self._index, self.ids, self.alive, self.end)

    def living(self) -> np.ndarray:
        return np.flatnonzero(self.alive[: self.end])

    def compact(self) -> np.ndarray:
        """Number the living anew, in their order; gives the numbers that they had."""
        kept = self.living()
        self.ids[: len(kept)] = self.ids[kept]
        self.alive[: len(kept)] = True
        self.alive[len(kept) : self.end] = False
        self.end, self._dead = len(kept), 0
        ik.rebuild(self._index, self.ids, self.alive, self.end)
        return kept

    def trim(self) -> None:
        """Give back room that is not needed. After ``compact``."""
        room = _FIRST_ROOM
        while room < self.end:
            room *= 2
        if room < self.room:
            self._resize(room)

    def _grow(self) -> None:
        self._resize(2 * self.room)

    def _resize(self, room: int) -> None:
        ids, alive = np.empty(room, np.int64), np.zeros(room, bool)
        ids[: self.end], alive[: self.end] = self.ids[: self.end], self.alive[: self.end]
        self.ids, self.alive = ids, alive
        self._index = np.empty(_INDEX_SLOTS * room, np.int64)
        ik.rebuild(self._index, self.ids, self.alive, self.end)
