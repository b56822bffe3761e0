"""Kernels that read single records of a file: their words, then the strings that these point to, by one call or two.

Threads: kernels only write to the arrays named ``out``, ``words``, ``heap`` or ``room``; any number may run at once.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
# Compiled by numba, which infers every type from the arrays it is given.

from __future__ import annotations

import numpy as np

from tailrace.env.files.point_file import pread
from tailrace.env.kernels.compile import copy_block, inlined, kernel
from tailrace.state.layout import VALID

PREFIX_BYTES = 4
FAILED = -1
END, NEEDED = 0, 1


@kernel
def read_words(descriptors, ends, at, row_bytes, out):
    """Rows at these positions, one after the other; neighbours with one call. Whether all of them came.

    Those up to ``ends[p]`` are of file ``p``, where they come ascending.
    """
    first = 0
    for p in range(ends.shape[0]):
        while first < ends[p]:
            end = first + 1
            while end < ends[p] and at[end] == at[end - 1] + 1:
                end += 1
            size = (end - first) * row_bytes
            if pread(descriptors[p], out, first * row_bytes, size, at[first] * row_bytes) != size:
                return False
            first = end
    return True


@inlined
def _length(data, at):
    """Of a string with its length before it, both together."""
    return (
        np.int64(data[at])
        + (np.int64(data[at + 1]) << 8)
        + (np.int64(data[at + 2]) << 16)
        + (np.int64(data[at + 3]) << 24)
        + PREFIX_BYTES
    )


@kernel
def read_strings(descriptors, ends, words, bytes_words, first, heap, room, lengths, out):
    """Strings of the rows from ``first`` on to the heap, from ``out[END]`` on; the rows' words then say where.

    Those of the rows up to ``ends[p]`` are in file ``p``. Returns the first row not done: the heap has no room for
    ``out[NEEDED]`` bytes more. ``FAILED`` where the file ends too early. ``lengths`` has room for a row's strings. A
    row's lie close together, mostly: one call gets them all.
    """
    out[NEEDED] = 0
    p = 0
    for i in range(first, words.shape[0]):
        while i >= ends[p]:
            p += 1
        descriptor = descriptors[p]
        low = np.int64(-1)
        for k in range(bytes_words.shape[0]):
            if words[i, VALID] >> bytes_words[k, 1] & 1:
                start = words[i, bytes_words[k, 0]]
                low = start if low < 0 or start < low else low
        if low < 0:
            continue
        came = pread(descriptor, room, 0, room.shape[0], low)
        needed = 0
        for k in range(bytes_words.shape[0]):
            if words[i, VALID] >> bytes_words[k, 1] & 1:
                at = words[i, bytes_words[k, 0]] - low
                if at + PREFIX_BYTES > came:
                    # Far from the others: its length first, where no other string of this row is needed any more.
                    if pread(descriptor, lengths, 8 * k, PREFIX_BYTES, low + at) != PREFIX_BYTES:
                        return FAILED
                    needed += _length(lengths, 8 * k)
                else:
                    for byte in range(PREFIX_BYTES):
                        lengths[8 * k + byte] = room[at + byte]
                    needed += _length(room, at)
        end = out[END]
        if end + needed > heap.shape[0]:
            out[NEEDED] = needed
            return i
        for k in range(bytes_words.shape[0]):
            if words[i, VALID] >> bytes_words[k, 1] & 1:
                at, length = words[i, bytes_words[k, 0]] - low, _length(lengths, 8 * k)
                if at + length <= came:
                    copy_block(room, at, heap, end, length)
                elif pread(descriptor, heap, end, length, low + at) != length:
                    return FAILED
                words[i, bytes_words[k, 0]] = end
                end += length
        out[END] = end
    return words.shape[0]
