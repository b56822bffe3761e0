"""Records of a segment read one by one, not as a whole: their words, then the strings that these point to.

Threads: any number at once.
"""

from __future__ import annotations

import errno

import numpy as np

from tailrace.env.point_file import BLOCK, PointFile
from tailrace.env.scratch import ScratchFile
from tailrace.state import point_kernels as pk
from tailrace.state.layout import VALID, RecordLayout
from tailrace.state.runs import take
from tailrace.state.table import Rows, concat_rows

_GUESS_BYTES = 256
"""Of a string whose length is not known yet so much is read: most are shorter, and end in the same block anyway."""
_ROW_BYTES = 1024
"""Of a row's strings so much is read at once."""
_HEAP_BYTES = 4 << 20
"""Room for strings is made for so much at first; where that is not enough, it grows."""
READ_BYTES = 16 << 20
"""So much of the files at most is in memory while they are read, beside the copies."""


class PointRows:
    def __init__(self, layout: RecordLayout, words: ScratchFile, heap: ScratchFile, *, direct: bool) -> None:
        """Of files that are written and not sealed. ``direct``: around the page cache, in whole blocks."""
        self._layout = layout
        self._direct = direct
        # A part may lie across the edge of two blocks.
        self._together = max(1, READ_BYTES // (2 * BLOCK * (1 + len(layout.bytes_words))))
        self._string_bytes = 0.0  # of a row, as the last ones had
        self._words = words.points(direct=direct)
        try:
            self._heap: PointFile | None = heap.points(direct=direct) if layout.has_bytes else None
        except BaseException:
            self._words.close()
            raise

    def copied(self, at: np.ndarray) -> Rows:
        """A copy of the records at these positions, ascending."""
        if not self._direct:
            return self._read(at)
        some = range(0, len(at), self._together)
        return concat_rows([self._read_blocks(at[first : first + self._together]) for first in some], self._layout)

    def close(self) -> None:
        self._words.close()
        if self._heap is not None:
            self._heap.close()

    # Through the page cache ------------------------------------------------------------------------------------------

    def _read(self, at: np.ndarray) -> Rows:
        words = np.empty((len(at), self._layout.words), np.int64)
        with self._words.reading() as descriptor:
            whole = pk.read_words(descriptor, at, 8 * self._layout.words, words.reshape(-1).view(np.uint8))
        if not whole:
            raise _cut_off()
        return Rows(words, np.empty(0, np.uint8) if self._heap is None else self._strings(words, self._heap))

    def _strings(self, words: np.ndarray, file: PointFile) -> np.ndarray:
        """The heap of these rows, which then point into it."""
        strings = self._layout.bytes_words
        heap = np.empty(min(_HEAP_BYTES, int(len(words) * self._string_bytes * 1.1)) + _ROW_BYTES, np.uint8)
        room, lengths, out = np.empty(_ROW_BYTES, np.uint8), np.empty(8 * len(strings), np.uint8), np.zeros(2, np.int64)
        done = 0
        with file.reading() as descriptor:
            while done < len(words):
                done = pk.read_strings(descriptor, words, strings, done, heap, room, lengths, out)
                if done == pk.FAILED:
                    raise _cut_off()
                if done < len(words):
                    larger = np.empty(2 * len(heap) + int(out[pk.NEEDED]), np.uint8)
                    larger[: out[pk.END]] = heap[: out[pk.END]]
                    heap = larger
        if len(words):
            self._string_bytes = float(out[pk.END]) / len(words)
        return heap[: out[pk.END]]

    # Around it -------------------------------------------------------------------------------------------------------

    def _read_blocks(self, at: np.ndarray) -> Rows:
        size = 8 * self._layout.words
        buffer, places = self._words.gather(at * size, np.full(len(at), size))
        bytes_ = buffer[places[:, None] + np.arange(size)]
        words = np.ascontiguousarray(bytes_).view(np.int64).reshape(len(at), self._layout.words)
        if self._heap is None:
            return Rows(words, np.empty(0, np.uint8))
        return self._with_strings(words, self._heap)

    def _with_strings(self, words: np.ndarray, heap: PointFile) -> Rows:
        own = [(word, np.flatnonzero(words[:, VALID] >> bit & 1)) for word, bit in self._layout.bytes_words]
        starts = np.concatenate([words[rows, word] for word, rows in own])
        buffer, places = heap.gather(starts, np.full(len(starts), _GUESS_BYTES))
        prefixes = np.ascontiguousarray(buffer[places[:, None] + np.arange(pk.PREFIX_BYTES)])
        lengths = prefixes.view(np.uint32).reshape(-1).astype(np.int64) + pk.PREFIX_BYTES
        if (lengths > _GUESS_BYTES).any():
            buffer, places = heap.gather(starts, lengths)
        done = 0
        for word, rows in own:
            words[rows, word] = places[done : done + len(rows)]
            done += len(rows)
        return take(Rows(words, buffer), np.arange(len(words), dtype=np.int64), self._layout)


def _cut_off() -> OSError:
    return OSError(errno.EIO, "a scratch file cannot be read any more: check that disk")


def warm_up_point_rows(layout: RecordLayout) -> None:
    """Compile the loops: on no rows, so that no file is needed."""
    words = np.empty((0, layout.words), np.int64)
    pk.read_words(-1, np.empty(0, np.int64), 8 * layout.words, words.reshape(-1).view(np.uint8))
    none, out = np.empty(0, np.uint8), np.zeros(2, np.int64)
    pk.read_strings(-1, words, layout.bytes_words, 0, none, none, none, out)
