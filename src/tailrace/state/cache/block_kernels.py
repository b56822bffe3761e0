"""Kernels of blocks of rows, which are given by their addresses in memory, since their number varies.

Threads: kernels only write to the arrays named ``out`` and ``words``; whoever calls holds the blocks meanwhile.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
# Compiled by numba, which infers every type from the arrays it is given.

from __future__ import annotations

import numpy as np

from tailrace.env.kernels.compile import copy_from, inlined, kernel, uint32_at
from tailrace.state.layout import VALID

_PREFIX_BYTES = 4


@inlined
def _length(start):
    """Bytes of the string at an address, its length prefix included."""
    return _PREFIX_BYTES + np.int64(uint32_at(start))


@kernel
def copy_words(addresses, which, numbers, bytes_words, out, out_bytes):
    """Copy row ``numbers[i]`` of block ``which[i]`` to ``out[i]``; gives the bytes that all their strings take.

    ``addresses``: of the words and the heap of each block. ``out_bytes`` is ``out``, byte by byte.
    """
    size = 8 * out.shape[1]
    needed = np.int64(0)
    for i in range(which.shape[0]):
        copy_from(addresses[which[i], 0] + numbers[i] * size, out_bytes, i * size, size)
        for b in range(bytes_words.shape[0]):
            if out[i, VALID] >> bytes_words[b, 1] & 1:
                needed += _length(addresses[which[i], 1] + out[i, bytes_words[b, 0]])
    return needed


@kernel
def copy_strings(addresses, which, bytes_words, words, out_heap):
    """Copy the strings of rows that ``copy_words`` has copied, and point the rows there."""
    end = np.int64(0)
    for i in range(which.shape[0]):
        for b in range(bytes_words.shape[0]):
            if words[i, VALID] >> bytes_words[b, 1] & 1:
                start = addresses[which[i], 1] + words[i, bytes_words[b, 0]]
                length = _length(start)
                copy_from(start, out_heap, end, length)
                words[i, bytes_words[b, 0]] = end
                end += length
