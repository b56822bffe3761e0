"""Room for a known number of rows that are read from several places: each part lies behind the one before it.

Threads: one at a time.
"""

from __future__ import annotations

import numpy as np

from tailrace.state.layout import RecordLayout
from tailrace.state.rows import arrange_kernels as rk
from tailrace.state.rows.rows import Rows

_HEAP_BYTES = 32 << 20
"""The first reservation for strings is at most this: one long string says little about the others."""


class RowBuffer:
    """``heap``: bytes up to ``heap_end`` are taken."""

    def __init__(self, layout: RecordLayout, rows: int, heap_bytes: int = 0) -> None:
        """``heap_bytes``: about what their strings take."""
        self._layout = layout
        self._words = np.empty((rows, layout.words), np.int64)
        self._end = 0
        self.heap = np.empty(min(heap_bytes, _HEAP_BYTES) if layout.has_bytes else 0, np.uint8)
        self.heap_end = 0

    def next(self, count: int) -> np.ndarray:
        """The words of so many rows more, for the caller to fill; their strings go to the heap's end."""
        self._end += count
        return self._words[self._end - count : self._end]

    def grow(self, needed: int) -> None:
        """So many bytes more than the heap had room for, at least."""
        larger = np.empty(2 * len(self.heap) + needed, np.uint8)
        larger[: self.heap_end] = self.heap[: self.heap_end]
        self.heap = larger

    def add(self, rows: Rows) -> None:
        """A copy of these."""
        words = self.next(len(rows))
        words[:] = rows.words
        if not self._layout.has_bytes:
            return
        rk.shift_strings(words, self._layout.bytes_words, self.heap_end)
        end = self.heap_end + len(rows.heap)
        if end > len(self.heap):
            self.grow(len(rows.heap))
        self.heap[self.heap_end : end] = rows.heap
        self.heap_end = end

    def rows(self) -> Rows:
        """All that came; nothing comes after it. Room that was not needed is given back."""
        self.heap.resize(self.heap_end, refcheck=False)
        return Rows(self._words[: self._end], self.heap)
