"""Records of a segment read one by one, not as a whole: their words, then the strings that these point to.

Threads: any number at once.
"""

from __future__ import annotations

import numpy as np

from tailrace.env.point_file import BLOCK, PointFile
from tailrace.env.scratch import ScratchFile
from tailrace.state.layout import VALID, RecordLayout
from tailrace.state.runs import take
from tailrace.state.table import Rows, concat_rows

_GUESS_BYTES = 256
"""Of a string whose length is not known yet so much is read: most are shorter, and end in the same block anyway."""
_PREFIX_BYTES = 4
READ_BYTES = 16 << 20
"""So much of the files at most is in memory while they are read, but for strings that are longer than blocks."""


class PointRows:
    def __init__(self, layout: RecordLayout, words: ScratchFile, heap: ScratchFile, *, direct: bool) -> None:
        """Of files that are written and not sealed. ``direct``: around the page cache."""
        self._layout = layout
        # A part may lie across the edge of two blocks.
        self._together = max(1, READ_BYTES // (2 * BLOCK * (1 + len(layout.bytes_words))))
        self._words = words.points(direct=direct)
        try:
            self._heap: PointFile | None = heap.points(direct=direct) if layout.has_bytes else None
        except BaseException:
            self._words.close()
            raise

    def copied(self, at: np.ndarray) -> Rows:
        """A copy of the records at these positions, of which so many are read at a time that it takes little memory."""
        some = range(0, len(at), self._together)
        return concat_rows([self._read(at[first : first + self._together]) for first in some], self._layout)

    def _read(self, at: np.ndarray) -> Rows:
        size = 8 * self._layout.words
        buffer, places = self._words.gather(at * size, np.full(len(at), size))
        bytes_ = buffer[places[:, None] + np.arange(size)]
        words = np.ascontiguousarray(bytes_).view(np.int64).reshape(len(at), self._layout.words)
        if self._heap is None:
            return Rows(words, np.empty(0, np.uint8))
        return self._with_strings(words, self._heap)

    def close(self) -> None:
        self._words.close()
        if self._heap is not None:
            self._heap.close()

    def _with_strings(self, words: np.ndarray, heap: PointFile) -> Rows:
        own = [(word, np.flatnonzero(words[:, VALID] >> bit & 1)) for word, bit in self._layout.bytes_words]
        starts = np.concatenate([words[rows, word] for word, rows in own])
        buffer, places = heap.gather(starts, np.full(len(starts), _GUESS_BYTES))
        prefixes = np.ascontiguousarray(buffer[places[:, None] + np.arange(_PREFIX_BYTES)])
        lengths = prefixes.view(np.uint32).reshape(-1).astype(np.int64) + _PREFIX_BYTES
        if (lengths > _GUESS_BYTES).any():
            buffer, places = heap.gather(starts, lengths)
        done = 0
        for word, rows in own:
            words[rows, word] = places[done : done + len(rows)]
            done += len(rows)
        return take(Rows(words, buffer), np.arange(len(words), dtype=np.int64), self._layout)
