"""Random columns of text, whole columns at a time: lengths first, then all characters of the column in one draw."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

ALPHANUMERIC = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
DIGITS = b"0123456789"


def texts(
    rng: np.random.Generator, rows: int, shortest: int, longest: int, alphabet: bytes = ALPHANUMERIC
) -> pa.StringArray:
    """``rows`` texts of ``shortest`` to ``longest`` characters, both included."""
    return _array(*_draw(rng, rows, shortest, longest, alphabet))


def texts_with_word(
    rng: np.random.Generator, rows: int, shortest: int, longest: int, word: bytes, one_in: int
) -> pa.StringArray:
    """The same, and one text in ``one_in`` has ``word`` somewhere inside."""
    offsets, characters = _draw(rng, rows, shortest, longest, ALPHANUMERIC)
    chosen = np.flatnonzero(rng.integers(0, one_in, rows) == 0)
    room = np.diff(offsets)[chosen] - len(word)
    starts = offsets[chosen] + rng.integers(0, room + 1)
    characters[starts[:, None] + np.arange(len(word))] = np.frombuffer(word, np.uint8)
    return _array(offsets, characters)


def decimals(cents: np.ndarray, digits: int, scale: int = 2) -> pa.Array:
    """Integers in units of the last decimal place, as decimals of ``digits`` digits."""
    words = np.zeros((len(cents), 2), np.int64)  # 128 bits, the lower half first
    words[:, 0] = cents
    words[:, 1] = np.where(cents < 0, -1, 0)
    return pa.Array.from_buffers(pa.decimal128(digits, scale), len(cents), [None, pa.py_buffer(words)])


def same(value: object, rows: int, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), rows)


def _draw(
    rng: np.random.Generator, rows: int, shortest: int, longest: int, alphabet: bytes
) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(rng.integers(shortest, longest + 1, rows), out=offsets[1:])
    drawn = rng.integers(0, len(alphabet), offsets[-1], dtype=np.uint8)
    return offsets, np.frombuffer(alphabet, np.uint8)[drawn]


def _array(offsets: np.ndarray, characters: np.ndarray) -> pa.StringArray:
    return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(characters))
