"""Reads of single records of segments: their words, then the strings that these point to.

Threads: any number at once.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

import numpy as np

from tailrace.env.files.point_file import BLOCK, PointFile, reading
from tailrace.env.files.scratch import ScratchFile
from tailrace.state.layout import VALID, RecordLayout
from tailrace.state.rows.arrange import take
from tailrace.state.rows.rows import Rows
from tailrace.state.segments import point_kernels as pk
from tailrace.state.segments.row_buffer import RowBuffer

_GUESS_BYTES = 256
"""Of a string whose length is not known yet so much is read: most are shorter, and end in the same block anyway."""
_ROW_BYTES, _ROW_BYTES_MOST = 1024, 16 << 10
"""Of a row's strings so much is read at once: as much as recent rows had, and somewhat more, between these."""
READ_BYTES = 16 << 20
"""So much of the files at most is in memory while they are read, beside the copies."""


class PointRows:
    def __init__(self, layout: RecordLayout, words: ScratchFile, heap: ScratchFile, *, direct: bool) -> None:
        """Of files that are written and not sealed. ``direct``: around the page cache, block by block."""
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

    def heap_bytes(self, count: int) -> int:
        """An estimate of the bytes that the strings of so many records take, from the records read so far."""
        return int(count * self._string_bytes * 1.1) + _ROW_BYTES

    def close(self) -> None:
        self._words.close()
        if self._heap is not None:
            self._heap.close()

    # Around the page cache -------------------------------------------------------------------------------------------

    def _read_directly(self, at: np.ndarray, room: RowBuffer) -> None:
        for first in range(0, len(at), self._together):
            room.add(self._read_blocks(at[first : first + self._together]))

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


def read_records(parts: Sequence[tuple[PointRows, np.ndarray]], room: RowBuffer) -> None:
    """Put the records at these positions, ascending in each part, into the room, part by part."""
    began, count = room.heap_end, sum(len(at) for _, at in parts)
    if not count:
        return
    if any(points._direct for points, _ in parts):
        for points, at in parts:
            points._read_directly(at, room)
    else:
        _read_cached([points for points, _ in parts], [at for _, at in parts], room)
    for points, _ in parts:
        points._string_bytes = (room.heap_end - began) / count


def _read_cached(points: Sequence[PointRows], at: Sequence[np.ndarray], room: RowBuffer) -> None:
    """Through the page cache, all with one loop: a call for each file would cost as much as ten records do."""
    layout, ends = points[0]._layout, np.cumsum([len(part) for part in at])
    words = room.next(int(ends[-1]))
    with reading([each._words for each in points]) as descriptors:
        bytes_ = words.reshape(-1).view(np.uint8)
        whole = pk.read_words(descriptors, ends, np.concatenate(at), 8 * layout.words, bytes_)
    if not whole:
        raise _cut_off()
    if not layout.has_bytes:
        return
    guess = 1.25 * max(each._string_bytes for each in points)
    row = np.empty(min(_ROW_BYTES_MOST, max(_ROW_BYTES, int(guess))), np.uint8)
    strings = layout.bytes_words
    lengths, out = np.empty(8 * len(strings), np.uint8), np.array([room.heap_end, 0], np.int64)
    done = 0
    with reading([each._heap for each in points if each._heap is not None]) as descriptors:
        while done < len(words):
            done = pk.read_strings(descriptors, ends, words, strings, done, room.heap, row, lengths, out)
            if done == pk.FAILED:
                raise _cut_off()
            room.heap_end = int(out[pk.END])
            if done < len(words):
                room.grow(int(out[pk.NEEDED]))


def _cut_off() -> OSError:
    return OSError(errno.EIO, "a scratch file cannot be read any more: check that disk")


def warm_up_point_rows(layout: RecordLayout) -> None:
    """Compile the loops: on no rows, so that no file is needed."""
    words, nobody = np.empty((0, layout.words), np.int64), np.empty(0, np.int64)
    pk.read_words(nobody, nobody, nobody, 8 * layout.words, words.reshape(-1).view(np.uint8))
    none, out = np.empty(0, np.uint8), np.zeros(2, np.int64)
    pk.read_strings(nobody, nobody, words, layout.bytes_words, 0, none, none, none, out)
