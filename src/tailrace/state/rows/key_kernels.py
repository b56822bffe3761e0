"""Kernels of groups of equal keys in a batch of rows.

Threads: kernels write only to the arrays that they are given for it.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
# Compiled by numba, which infers every type from the arrays it is given.

from __future__ import annotations

import numpy as np

from tailrace.env.kernels.compile import kernel, prefetch
from tailrace.state.layout import HASH, PANE, VALID
from tailrace.state.rows.value_kernels import fingerprint_of, same_key

_LOW = np.int64(0xFFFFFFFF)
_AHEAD = 16


@kernel
def number_groups(words, heap, key_words, key_mask, index, numbers, firsts):
    """Number the keys (pane included) of rows in the order in which they come; return how many there are.

    ``index``: a power of two of entries, at least twice the rows, all -1. ``firsts``: the first row of each key.
    """
    mask = index.shape[0] - 1
    count = np.int64(0)
    for i in range(words.shape[0]):
        if i + _AHEAD < words.shape[0]:
            prefetch(index, fingerprint_of(words[i + _AHEAD, HASH], words[i + _AHEAD, PANE]) & mask)
        fingerprint = fingerprint_of(words[i, HASH], words[i, PANE])
        at = fingerprint & mask
        number = np.int64(-1)
        while index[at] >= 0:
            entry = index[at]
            if entry >> 32 == fingerprint and same_key(
                words, firsts[entry & _LOW], heap, words, i, heap, key_words, key_mask
            ):
                number = entry & _LOW
                break
            at = (at + 1) & mask
        if number < 0:
            number = count
            firsts[count] = i
            index[at] = fingerprint << 32 | count
            count += 1
        numbers[i] = number
    return count


@kernel
def same_keys(records, arena, rows, heap, key_words, key_mask, out):
    """Whether the record at each row's position has the same key."""
    for i in range(rows.shape[0]):
        out[i] = same_key(records, i, arena, rows, i, heap, key_words, key_mask)


@kernel
def earliest_rows(words, word, bit, numbers, chosen):
    """Of each group the row with the smallest time, then the first; rows without a time come after all others.

    ``chosen``: the first row of each group, in place of which that row is put.
    """
    for i in range(words.shape[0]):
        best = chosen[numbers[i]]
        mine, its = words[i, VALID] >> bit & 1, words[best, VALID] >> bit & 1
        if mine > its or (mine == its and words[i, word] < words[best, word]):
            chosen[numbers[i]] = i
