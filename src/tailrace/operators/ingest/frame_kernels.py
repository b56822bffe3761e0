"""Kernels of frames: checksums, and whether all strings lie inside."""

from __future__ import annotations

import numpy as np

from tailrace.env.kernels.compile import kernel
from tailrace.state.layout import VALID
from tailrace.state.rows.value_kernels import bytes_length


@kernel
def mix_words(words, seed):
    """In four lanes: a multiplication must not wait for the one before it."""
    factor, shift = np.uint64(0x9E3779B97F4A7C15), np.uint64(29)
    a = np.uint64(seed) ^ np.uint64(words.shape[0])
    b, c, d = a + factor, a ^ factor, a - factor
    whole = words.shape[0] // 4 * 4
    for i in range(0, whole, 4):
        a = (a ^ np.uint64(words[i])) * factor
        b = (b ^ np.uint64(words[i + 1])) * factor
        c = (c ^ np.uint64(words[i + 2])) * factor
        d = (d ^ np.uint64(words[i + 3])) * factor
        a ^= a >> shift
        b ^= b >> shift
        c ^= c >> shift
        d ^= d >> shift
    for i in range(whole, words.shape[0]):
        a = (a ^ np.uint64(words[i])) * factor
        a ^= a >> shift
    for compaction_group in (b, c, d):
        a = (a ^ compaction_group) * factor
        a ^= a >> shift
    return np.int64(a)


@kernel
def mix_tail(data, seed):
    """Byte by byte: for the few that are no whole word."""
    state = np.uint64(seed) ^ np.uint64(data.shape[0])
    for i in range(data.shape[0]):
        state = (state ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
    return np.int64(state)


def mix_bytes(data: np.ndarray, seed: int) -> int:
    """As words, eight bytes at a time, whatever their alignment."""
    whole = len(data) // 8 * 8
    words = data[:whole].view(np.int64)
    return int(mix_words(words if words.flags.aligned else words.copy(), mix_tail(data[whole:], seed)))


@kernel
def strings_inside(words, heap, bytes_words):
    """Whether every string that is there lies in the heap, its length included."""
    end = heap.shape[0]
    for b in range(bytes_words.shape[0]):
        word, bit = bytes_words[b, 0], bytes_words[b, 1]
        for i in range(words.shape[0]):
            if words[i, VALID] >> bit & 1:
                at = words[i, word]
                if at < 0 or at > end - 4 or bytes_length(heap, at) < 0 or bytes_length(heap, at) > end - 4 - at:
                    return False
    return True
