"""Kernels of single values, strings and keys of rows: what every kernel over rows is made of.

Invariants
- Two keys are one only if every word, the key's valid bits and every byte agree; a hash decides nothing by itself.
- A byte string is length-prefixed: 4 bytes, little-endian.

Threads: pure functions; those that copy write only to the arrays they are given for it.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
# Compiled by numba, which infers every type from the arrays it is given.

from __future__ import annotations

import numpy as np

from tailrace.env.kernels.compile import copy_block, inlined, kernel
from tailrace.state.layout import HASH, K_BYTES, K_FLOAT64, K_INT64, PANE, VALID


@inlined
def fingerprint_of(hash_, pane):
    """31 well-mixed bits of (hash, pane). Shards take the low bits of the hash, so they must be mixed in."""
    x = np.uint64(hash_) ^ (np.uint64(pane) * np.uint64(0x9E3779B97F4A7C15))
    x ^= x >> np.uint64(32)
    x *= np.uint64(0xD6E8FEB86659FD93)
    x ^= x >> np.uint64(32)
    x *= np.uint64(0xD6E8FEB86659FD93)
    return np.int64(x >> np.uint64(33))


@inlined
def as_double(word):
    return np.int64(word).view(np.float64)


@inlined
def as_word(double):
    return np.float64(double).view(np.int64)


@inlined
def bytes_length(heap, at):
    return (
        np.int64(heap[at]) | np.int64(heap[at + 1]) << 8 | np.int64(heap[at + 2]) << 16 | np.int64(heap[at + 3]) << 24
    )


@inlined
def copy_bytes(source, at, target, end):
    """Copy a length-prefixed string; return the new end of the target."""
    total = 4 + bytes_length(source, at)
    copy_block(source, at, target, end, total)
    return end + total


@inlined
def compare_bytes(heap_a, a, heap_b, b):
    length_a, length_b = bytes_length(heap_a, a), bytes_length(heap_b, b)
    for i in range(4, 4 + min(length_a, length_b)):
        x, y = heap_a[a + i], heap_b[b + i]
        if x != y:
            return -1 if x < y else 1
    if length_a == length_b:
        return 0
    return -1 if length_a < length_b else 1


@inlined
def compare_doubles(a, b):
    """Spark's order: NaN is the largest and equals itself; zeros are equal."""
    if a < b:
        return -1
    if a > b:
        return 1
    a_nan, b_nan = a != a, b != b
    if a_nan and not b_nan:
        return 1
    if b_nan and not a_nan:
        return -1
    return 0


@inlined
def compare_values(kind, rows_a, a, heap_a, rows_b, b, heap_b, word):
    if kind == K_INT64:
        x, y = rows_a[a, word], rows_b[b, word]
        return -1 if x < y else (1 if x > y else 0)
    if kind == K_FLOAT64:
        return compare_doubles(as_double(rows_a[a, word]), as_double(rows_b[b, word]))
    if kind == K_BYTES:
        return compare_bytes(heap_a, rows_a[a, word], heap_b, rows_b[b, word])
    high_a, high_b = rows_a[a, word + 1], rows_b[b, word + 1]
    if high_a != high_b:
        return -1 if high_a < high_b else 1
    low_a, low_b = np.uint64(rows_a[a, word]), np.uint64(rows_b[b, word])
    return -1 if low_a < low_b else (1 if low_a > low_b else 0)


@inlined
def same_key(records, r, arena, rows, i, heap, key_words, key_mask):
    if records[r, HASH] != rows[i, HASH] or records[r, PANE] != rows[i, PANE]:
        return False
    if (records[r, VALID] ^ rows[i, VALID]) & key_mask != 0:
        return False
    for k in range(key_words.shape[0]):
        word = key_words[k, 0]
        bytes_bit = key_words[k, 1]
        if bytes_bit < 0:
            if records[r, word] != rows[i, word]:
                return False
        elif records[r, VALID] >> bytes_bit & 1 and compare_bytes(arena, records[r, word], heap, rows[i, word]) != 0:
            return False
    return True


@inlined
def lower_bound(ascending, low, high, wanted):
    """The first place in [low, high) with a number of at least ``wanted``, else ``high``."""
    while low < high:
        middle = (low + high) >> 1
        if ascending[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def bytes_needed(rows, i, heap, bytes_words):
    """Bytes that the strings of one row take."""
    total = np.int64(0)
    for b in range(bytes_words.shape[0]):
        if rows[i, VALID] >> bytes_words[b, 1] & 1:
            total += 4 + bytes_length(heap, rows[i, bytes_words[b, 0]])
    return total


@inlined
def copy_row_strings(rows, source, heap, bytes_words, out_rows, target, out_heap, heap_end):
    """Copy the strings of one row to ``out_heap`` and point the target row there; return the new end of the heap."""
    for b in range(bytes_words.shape[0]):
        if rows[source, VALID] >> bytes_words[b, 1] & 1:
            word = bytes_words[b, 0]
            moved = heap_end
            heap_end = copy_bytes(heap, rows[source, word], out_heap, heap_end)
            out_rows[target, word] = moved
    return heap_end


@kernel
def heap_needed(rows, heap, chosen, bytes_words):
    """Bytes that the strings of the chosen rows take."""
    total = np.int64(0)
    for i in range(chosen.shape[0]):
        total += bytes_needed(rows, chosen[i], heap, bytes_words)
    return total


@kernel
def copy_out(rows, heap, chosen, panes, bytes_words, out_rows, at, out_heap, heap_end):
    """Copy the chosen rows and their strings to ``out_rows[at:]``; return the new end of ``out_heap``.

    Where ``panes`` is not empty, the copies get these panes.
    """
    for i in range(chosen.shape[0]):
        source, target = chosen[i], at + i
        for w in range(out_rows.shape[1]):
            out_rows[target, w] = rows[source, w]
        if panes.shape[0] > 0:
            out_rows[target, PANE] = panes[i]
        heap_end = copy_row_strings(rows, source, heap, bytes_words, out_rows, target, out_heap, heap_end)
    return heap_end
