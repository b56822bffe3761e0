"""Kernels between Arrow's strings and length-prefixed ones in a heap."""

from __future__ import annotations

import numpy as np

from tailrace.env.kernels.compile import copy_block, kernel
from tailrace.state.rows.value_kernels import bytes_length


@kernel
def pack_strings(offsets, source, valid, heap_start, words, out):
    end = np.int64(0)
    for i in range(words.shape[0]):
        if not valid[i]:
            continue
        start, length = offsets[i], offsets[i + 1] - offsets[i]
        words[i] = heap_start + end
        for b in range(4):
            out[end + b] = (length >> (8 * b)) & 0xFF
        end += 4
        copy_block(source, start, out, end, length)
        end += length
    return end


@kernel
def string_offsets(words, valid, heap, offsets):
    end = np.int64(0)
    for i in range(words.shape[0]):
        if valid[i]:
            end += bytes_length(heap, words[i])
        offsets[i + 1] = end


@kernel
def unpack_strings(words, valid, heap, offsets, out):
    for i in range(words.shape[0]):
        if valid[i]:
            base = offsets[i]
            copy_block(heap, words[i] + 4, out, base, offsets[i + 1] - base)


@kernel
def string_positions(heap, starts, ends, counts, out):
    """Where each string begins, of those that lie one after the other from ``starts[i]`` to ``ends[i]``.

    ``counts[i]``: how many there are. Return how many there are in all; where ``out`` is too short, more than it holds.
    """
    total = np.int64(0)
    for i in range(starts.shape[0]):
        at, first = starts[i], total
        while at < ends[i]:
            if total < out.shape[0]:
                out[total] = at
            total += 1
            at += 4 + bytes_length(heap, at)
        counts[i] = total - first
    return total
