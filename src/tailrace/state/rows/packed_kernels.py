"""Kernels that put several rows of a key into one byte string, and take them out again. See ``packed_rows``.

Threads: kernels write only to the arrays that they are given for it.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
# Compiled by numba, which infers every type from the arrays it is given.

from __future__ import annotations

import numpy as np

from tailrace.env.kernels.compile import inlined, kernel
from tailrace.state.layout import VALID
from tailrace.state.rows.value_kernels import bytes_length, copy_bytes

PREFIX = 4
"""Bytes of a length, and of a count."""
WORD = 8


@inlined
def _put_number(heap, at, number, count):
    for b in range(count):
        heap[at + b] = (number >> (8 * b)) & 0xFF


@inlined
def _word_at(heap, at):
    low = np.int64(bytes_length(heap, at))
    return low | np.int64(bytes_length(heap, at + 4)) << 32


@kernel
def packed_sizes(words, heap, chosen, starts, first, bytes_words, sizes):
    """Bytes that each group takes, its key's strings included. Groups are rows ``chosen[starts[g]:starts[g + 1]]``."""
    width = 1 + words.shape[1] - first
    for g in range(starts.shape[0] - 1):
        total = np.int64(2 * PREFIX + (starts[g + 1] - starts[g]) * width * WORD)
        for j in range(starts[g], starts[g + 1]):
            row = chosen[j]
            for b in range(bytes_words.shape[0]):
                own = bytes_words[b, 0] >= first or j == starts[g]
                if own and words[row, VALID] >> bytes_words[b, 1] & 1:
                    total += PREFIX + bytes_length(heap, words[row, bytes_words[b, 0]])
        sizes[g] = total


@kernel
def pack(words, heap, chosen, starts, places, first, bytes_words, key_mask, out, out_heap):
    """A record for each group in ``out``: its key, and its rows, with all strings from ``places[g]`` of the heap on."""
    width = 1 + words.shape[1] - first
    rows_bit = np.int64(key_mask) + 1  # the bit after the keys' own
    for g in range(starts.shape[0] - 1):
        row = chosen[starts[g]]
        end = places[g]
        for w in range(first):
            out[g, w] = words[row, w]
        for b in range(bytes_words.shape[0]):
            word = bytes_words[b, 0]
            if word < first and words[row, VALID] >> bytes_words[b, 1] & 1:
                out[g, word] = end
                end = copy_bytes(heap, words[row, word], out_heap, end)
        out[g, VALID] = (words[row, VALID] & key_mask) | rows_bit
        out[g, first] = end
        begin = end + PREFIX
        at = begin + PREFIX
        end = at + (starts[g + 1] - starts[g]) * width * WORD
        _put_number(out_heap, begin, starts[g + 1] - starts[g], PREFIX)
        for j in range(starts[g], starts[g + 1]):
            row = chosen[j]
            _put_number(out_heap, at, words[row, VALID] & ~key_mask, WORD)
            for w in range(first, words.shape[1]):
                _put_number(out_heap, at + (1 + w - first) * WORD, words[row, w], WORD)
            for b in range(bytes_words.shape[0]):
                word = bytes_words[b, 0]
                if word >= first and words[row, VALID] >> bytes_words[b, 1] & 1:
                    # As far from the string's own beginning, which moves with it.
                    _put_number(out_heap, at + (1 + word - first) * WORD, end - out[g, first], WORD)
                    end = copy_bytes(heap, words[row, word], out_heap, end)
            at += width * WORD
        _put_number(out_heap, out[g, first], end - begin, PREFIX)


@kernel
def packed_counts(records, heap, first, counts):
    """How many rows each record holds."""
    for r in range(records.shape[0]):
        counts[r] = bytes_length(heap, records[r, first] + PREFIX)


@kernel
def unpack(records, heap, first, bytes_words, key_mask, starts, out):
    """The rows of all records, record after record; their strings stay where they are in the heap."""
    width = 1 + out.shape[1] - first
    for r in range(records.shape[0]):
        begin = records[r, first]
        at = begin + 2 * PREFIX
        for j in range(starts[r], starts[r + 1]):
            for w in range(first):
                out[j, w] = records[r, w]
            valid = _word_at(heap, at)
            out[j, VALID] = (records[r, VALID] & key_mask) | valid
            for w in range(first, out.shape[1]):
                out[j, w] = _word_at(heap, at + (1 + w - first) * WORD)
            for b in range(bytes_words.shape[0]):
                if bytes_words[b, 0] >= first and valid >> bytes_words[b, 1] & 1:
                    out[j, bytes_words[b, 0]] += begin
            at += width * WORD
