"""Loops of `prepared`: contents of values, and what gets must find. Free functions over arrays; threads: any number."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
# Compiled by numba, which infers every type from the arrays it is given.

from __future__ import annotations

import numpy as np

from tailrace.testing.bench.compiled import kernel

GET, PUT, MERGE = 0, 1, 2
"""`trace.Operation`, as kernels see it."""


@kernel
def fill(first, sizes, starts, data):
    """Bytes that mix the number of the access, from ``first`` on, with the place in its value."""
    for i in range(sizes.shape[0]):
        bits = np.uint64(0)
        for b in range(sizes[i]):
            if b % 8 == 0:
                bits = np.uint64(first + i + 1) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(b)
                bits = (bits ^ (bits >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
            data[starts[i] + b] = np.uint8(bits >> np.uint64(8 * (b % 8)))


@kernel
def expected_sizes(operations, keys, sizes, newest, links, out, seen):
    """Write for each get how long its answer is (-1: none) and the newest write in it; return the sum of lengths.

    ``newest``: -1 for each key. ``links``: for each write, the write whose bytes come before its own, or -1.
    """
    total, gets = 0, 0
    for i in range(operations.shape[0]):
        key = keys[i]
        if operations[i] == GET:
            size = np.int64(-1)
            at = newest[key]
            seen[gets] = at
            if at >= 0:
                size = 0
            while at >= 0:
                size += sizes[at]
                at = links[at]
            out[gets] = size
            total += max(size, 0)
            gets += 1
        elif operations[i] == PUT:
            links[i] = -1
            newest[key] = i
        elif operations[i] == MERGE:
            links[i] = newest[key]
            newest[key] = i
        else:
            newest[key] = -1
    return total


@kernel
def expected_bytes(seen, out_sizes, links, sizes, starts, data, out):
    end = np.int64(0)
    for g in range(seen.shape[0]):
        if out_sizes[g] < 0:
            continue
        end += out_sizes[g]
        before = end
        at = seen[g]
        while at >= 0:
            before -= sizes[at]
            for b in range(sizes[at]):
                out[before + b] = data[starts[at] + b]
            at = links[at]
