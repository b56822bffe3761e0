"""Kernels between Arrow's strings and length-prefixed ones in a heap."""

from __future__ import annotations

import numpy as np

from tailrace.env.compiled import kernel
from tailrace.state.table_kernels import bytes_length


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
        for b in range(length):
            out[end + b] = source[start + b]
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
            start = words[i] + 4
            base = offsets[i]
            for b in range(offsets[i + 1] - base):
                out[base + b] = heap[start + b]
