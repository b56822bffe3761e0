"""Random strings for whole columns: made as one matrix of letters, cut to their lengths, never one by one.

A column of strings is a pair (lengths, bytes) until it becomes an Arrow array. Letters come from a draw's eight bytes,
each scaled to 0..25 and so not quite uniform: some letters have 9 chances in 256, some 10.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tailrace.lab.workloads.nexmark.events.draws import Ints, Words, below, draw, draw_words

Bytes = NDArray[np.uint8]

_EVEN = np.uint64(0x00FF00FF00FF00FF)
_ODD = np.uint64(0xFF00FF00FF00FF00)
_LETTERS = np.uint64(26)
_A = np.uint64(0x6161616161616161)
_EIGHT = np.uint64(8)
_FILLER_CHANCE = 20  # of 256: as near as a byte comes to 1 in 13
_MIN_LENGTH = 3


def _to_letters(words: Words) -> Words:
    """Each byte of each word scaled to a letter a..z, eight at a time; in place. A 16-bit lane never overflows."""
    odd = words >> _EIGHT
    odd &= _EVEN
    odd *= _LETTERS
    odd &= _ODD
    words &= _EVEN
    words *= _LETTERS
    words >>= _EIGHT
    words &= _EVEN
    words |= odd
    words += _A
    return words


def letters(keys: Words, first: int, width: int) -> Bytes:
    """A matrix of at least ``width`` letters for each key."""
    count = -(-width // 8)
    return _bytes_of(_to_letters(draw_words(keys, first, count)))


def _bytes_of(words: Words) -> Bytes:
    """A matrix of words as a matrix of bytes, the same on every machine."""
    rows, count = words.shape
    return words.astype("<u8", copy=False).view(np.uint8).reshape(rows, 8 * count)


def cut(matrix: Bytes, starts: Ints | None, ends: Ints) -> pa.Array:
    """Row i of the matrix from ``starts[i]`` (0 without) to ``ends[i]``, as strings."""
    at = np.arange(matrix.shape[1], dtype=np.int16)
    keep = at < ends.astype(np.int16)[:, None]
    lengths = ends
    if starts is not None:
        keep &= at >= starts.astype(np.int16)[:, None]
        lengths = ends - starts
    return from_bytes(lengths, matrix[keep])


def from_bytes(lengths: Ints, data: Bytes) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(data))


def byte_lengths(array: pa.Array) -> Ints:
    """Lengths in bytes of an array of strings, none of them null."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    return np.diff(offsets).astype(np.int64)


def random_strings(keys: Words, first: int, longest: int, filler: str = " ") -> pa.Array:
    """``string(longest)`` of the reference: 3 .. longest-1 letters and fillers, blanks trimmed at both ends.

    Uses the draws from ``first`` on: one for the length, then one for each eight letters and for each eight fillers.
    """
    ends = _MIN_LENGTH + below(draw(keys, first), longest - _MIN_LENGTH)
    count = -(-(longest - 1) // 8)
    matrix = letters(keys, first + 1, longest - 1)
    blank = _bytes_of(draw_words(keys, first + 1 + count, count)) < _FILLER_CHANCE
    matrix[blank] = ord(filler)
    if filler != " ":
        return cut(matrix, None, ends)
    width = matrix.shape[1]
    solid = ~blank & (np.arange(width) < ends[:, None])
    some = solid.any(axis=1)
    starts = np.where(some, solid.argmax(axis=1), 0)
    stops = np.where(some, width - solid[:, ::-1].argmax(axis=1), 0)
    return cut(matrix, starts, stops)


def padding(keys: Words, first: int, current: int | Ints, target: int) -> pa.Array:
    """``extra`` of the reference: brings a row of ``current`` bytes to about ``target``, give or take a fifth of it."""
    room = np.broadcast_to(np.asarray(target - current, np.int64), keys.shape)
    spare = (room * 2 + 5) // 10  # a fifth, rounded; zero or less where there is no room
    jitter = below(draw(keys, first), np.maximum(2 * spare, 1))
    lengths = np.where(room >= 0, room - spare + jitter, 0)
    longest = int(lengths.max(initial=0))
    return cut(letters(keys, first + 1, max(longest, 1)), None, lengths)
