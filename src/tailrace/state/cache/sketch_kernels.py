"""Counting in a packed Count-Min sketch. Counters are fields of 64-bit words, as many as fit; no field crosses a word.

Threads: pure functions over arrays; they write the cells they are given.
"""

from __future__ import annotations

import numpy as np

from tailrace.env.kernels.compile import inlined, kernel

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)
_ONE = np.uint64(1)


@inlined
def _place(key: np.uint64, row: int, width: int) -> np.int64:
    """Where a row of the sketch counts a key: keys are hashes already, mixed once more for each row."""
    h = key + _STEP * np.uint64(row + 1)
    h = (h ^ (h >> _S30)) * _MIX_1
    h = (h ^ (h >> _S27)) * _MIX_2
    h = h ^ (h >> _S31)
    return np.int64(((h >> _S32) * np.uint64(width)) >> _S32)


@inlined
def _counter(
    key: np.uint64, row: int, cells: np.ndarray, width: int, bits: int, fields: int, full: np.uint64
) -> tuple[np.int64, np.uint64, np.uint64]:
    """What a row of the sketch has counted of a key: the word, how far the counter is shifted in it, and the count.

    ``fields``: counters of a word. ``full``: the largest count.
    """
    at = _place(key, row, width)
    word, shift = at // fields, np.uint64((at % fields) * bits)
    return word, shift, (cells[row, word] >> shift) & full


@inlined
def _halve(cells: np.ndarray, halves: np.uint64) -> None:
    """Every counter divided by 2: ``halves`` masks the bit that a field would get from its neighbour."""
    for row in range(cells.shape[0]):
        for word in range(cells.shape[1]):
            cells[row, word] = (cells[row, word] >> _ONE) & halves


@kernel
def count_keys(
    keys: np.ndarray,
    cells: np.ndarray,
    width: int,
    bits: int,
    halves: np.uint64,
    threshold: int,
    interval: int,
    counted: int,
    hot: np.ndarray,
) -> int:
    """Count each key and say whether it is hot then; halve all counters after every ``interval`` keys.

    ``counted``: keys since the last halving. Gives that number as it is afterwards.
    """
    fields, full = 64 // bits, (_ONE << np.uint64(bits)) - _ONE
    for i in range(len(keys)):
        least = full
        for row in range(cells.shape[0]):
            word, shift, count = _counter(np.uint64(keys[i]), row, cells, width, bits, fields, full)
            if count < full:
                count += _ONE
                cells[row, word] += _ONE << shift
            least = min(least, count)
        hot[i] = least > np.uint64(threshold)
        counted += 1
        if counted >= interval:
            _halve(cells, halves)
            counted = 0
    return counted


@kernel
def count_of(keys: np.ndarray, cells: np.ndarray, width: int, bits: int, out: np.ndarray) -> None:
    """The estimate of each key's count: the smallest of its counters."""
    fields, full = 64 // bits, (_ONE << np.uint64(bits)) - _ONE
    for i in range(len(keys)):
        least = full
        for row in range(cells.shape[0]):
            _, _, count = _counter(np.uint64(keys[i]), row, cells, width, bits, fields, full)
            least = min(least, count)
        out[i] = np.int64(least)
