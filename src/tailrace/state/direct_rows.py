"""Records of a segment read around the page cache: their words, then the strings that these point to.

Threads: any number at once.
"""

from __future__ import annotations

import numpy as np

from tailrace.env.direct_file import DirectFile
from tailrace.env.scratch import ScratchFile
from tailrace.state.layout import VALID, RecordLayout
from tailrace.state.runs import take
from tailrace.state.table import Rows

_GUESS_BYTES = 256
"""Of a string whose length is not known yet so much is read: most are shorter, and end in the same block anyway."""
_PREFIX_BYTES = 4


class DirectRows:
    def __init__(self, layout: RecordLayout, words: ScratchFile, heap: ScratchFile) -> None:
        """Of files that are written and not sealed."""
        self._layout = layout
        self._words = words.direct()
        try:
            self._heap: DirectFile | None = heap.direct() if layout.has_bytes else None
        except BaseException:
            self._words.close()
            raise

    def copied(self, at: np.ndarray) -> Rows:
        """A copy of the records at these positions."""
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

    def _with_strings(self, words: np.ndarray, heap: DirectFile) -> Rows:
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
