"""The arrays of a table: how large they are, how they lie in memory, how they grow and shrink.

Invariants
- Kernels trust records, links and free rows to be of one length, and the index to have at least twice as many slots.
  Memory may run out at any of them: so each step makes all new arrays before it puts the first in place.
- Room for records grows by doubling, that for strings by half, or to what is needed.

Threads: as the table, one at a time.
"""

from __future__ import annotations

import numpy as np

from tailrace.state.hash_table import kernels as tk
from tailrace.state.hash_table import upkeep_kernels as uk
from tailrace.state.hash_table.undo_logs import UndoLogs, grown
from tailrace.state.layout import RecordLayout
from tailrace.state.rows.value_kernels import heap_needed

FIRST_ROWS = 64


class TableArrays:
    """``records``: the words of a record, then a stamp. ``arena``: the strings. ``counters``: see ``kernels``."""

    def __init__(self, layout: RecordLayout, rows: int) -> None:
        self._layout = layout
        self.counters = np.zeros(tk.COUNTERS, np.int64)
        self.records = _record_matrix(rows, layout.words + 1)
        self.links = np.empty(rows, np.int32)
        self.free = np.empty(rows, np.int32)
        self.index = np.full(_index_slots(rows), -1, np.int64)
        self.panes = _empty_panes(8)
        self.arena = np.empty(1024 if layout.has_bytes else 0, np.uint8)

    @property
    def nbytes(self) -> int:
        """Bytes that are in use; freshly grown, untouched room is not counted."""
        used = int(self.counters[tk.ROWS_END])
        fixed = used * (self._layout.words * 8 + 16) + self.index.nbytes + self.panes.nbytes
        return fixed + int(self.counters[tk.ARENA_END])

    # Growing ---------------------------------------------------------------------------------------------------------

    def grow_rows(self) -> None:
        rows = 2 * len(self.records)
        records = _record_matrix(rows, self.records.shape[1])
        records[: len(self.records)] = self.records
        links, free, index = grown(self.links, rows), grown(self.free, rows), self.index
        if _index_slots(rows) > len(index):
            index = np.full(_index_slots(rows), -1, np.int64)
            uk.rehash(self.index, index)
        self.records, self.links, self.free, self.index = records, links, free, index

    def grow_panes(self) -> None:
        panes = _empty_panes(2 * len(self.panes))
        uk.rehash_panes(self.panes, panes)
        self.panes = panes

    def grow_arena(self, needed: int) -> None:
        """By half at least, and so that ``needed`` bytes more have room."""
        end = int(self.counters[tk.ARENA_END])
        self.arena = grown(self.arena, max(len(self.arena) + len(self.arena) // 2, end + needed))

    # Shrinking -------------------------------------------------------------------------------------------------------

    def evict(self, rows: np.ndarray, undo: UndoLogs) -> np.ndarray:
        """Drop these records, and all room that is not needed without them. Gives which of the old rows stay."""
        end, width = int(self.counters[tk.ROWS_END]), self.records.shape[1]
        stays: np.ndarray = self.records[:end, width - 1] != tk.FREE
        stays[rows] = False
        left = int(stays.sum())
        moved = np.where(stays, np.cumsum(stays) - 1, -1)
        room = len(self.records)
        while room // 2 >= max(left + left // 4, FIRST_ROWS):
            room //= 2
        pane_slots = len(self.panes)
        while pane_slots > max(8, 4 * self.counters[tk.PANES]):
            pane_slots //= 2
        records, links, free = _record_matrix(room, width), np.empty(room, np.int32), np.empty(room, np.int32)
        index, panes = np.full(_index_slots(room), -1, np.int64), _empty_panes(pane_slots)
        logs = undo.renumbered(moved)
        arena = self._fresh_arena(undo) if self._layout.has_bytes else None
        kept_panes = uk.repack(moved, self.records, self.links, self.index, self.panes, records, links, index, panes)
        undo.renumber(logs)
        self.records, self.links, self.free, self.index, self.panes = records, links, free, index, panes
        self.counters[tk.ROWS_END], self.counters[tk.FREE_END] = left, 0
        self.counters[tk.LIVE] -= len(rows)
        self.counters[tk.PANES] = kept_panes
        if arena is not None:
            self._move_strings(arena, undo)
        return stays

    def compact_strings(self, undo: UndoLogs) -> None:
        """Drop the strings that no record and no undo log points to, and most of the room that they took."""
        self._move_strings(self._fresh_arena(undo), undo)

    def _fresh_arena(self, undo: UndoLogs) -> np.ndarray:
        """Room for all strings. Of a record and of its image the string may be one; copied, it is two."""
        needed, words = int(self.counters[tk.ARENA_END]), self._layout.bytes_words
        for log in undo:
            needed += int(heap_needed(log.images, self.arena, np.arange(log.images_end), words))
        return np.empty(needed, np.uint8)

    def _move_strings(self, fresh: np.ndarray, undo: UndoLogs) -> None:
        """To other room, of which only as much is kept as they need to grow by half.

        Room that nobody writes to is not free of charge: it lies where others have written before (``kept_memory``).
        """
        words, rows_end = self._layout.bytes_words, int(self.counters[tk.ROWS_END])
        end = uk.move_strings(self.records, self._layout.words, rows_end, words, self.arena, fresh, 0)
        for log in undo:
            end = uk.move_strings(log.images, -1, log.images_end, words, self.arena, fresh, end)
        for log in undo:
            log.arena_end, log.arena_waste = int(end), 0
        self.arena = fresh
        self.counters[tk.ARENA_END], self.counters[tk.ARENA_WASTE] = end, 0
        if len(fresh) > end + end // 2:
            fresh.resize(end + end // 2, refcheck=False)


def _index_slots(rows: int) -> int:
    """A power of two, so that a hash finds its slot by a mask; at most half full."""
    return 1 << (2 * rows - 1).bit_length()


def _record_matrix(rows: int, words: int) -> np.ndarray:
    """Starts at a cache line, so that a record of eight words lies in one."""
    raw = np.empty(rows * words + 8, np.int64)
    skip = -raw.ctypes.data % 64 // 8
    return raw[skip : skip + rows * words].reshape(rows, words)


def _empty_panes(slots: int) -> np.ndarray:
    panes = np.zeros((slots, tk.PANE_WORDS), np.int64)
    panes[:, tk.PANE_HEAD] = tk.EMPTY_PANE
    return panes
