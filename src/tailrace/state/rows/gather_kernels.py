"""Kernels of ``spread``: words of rows turned to columns, and strings out of one of several heaps.

Threads: kernels only write to the arrays named ``out``, ``lengths`` or ``data``; any number may run at once.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
# Compiled by numba, which infers every type from the arrays it is given.

from __future__ import annotations

from tailrace.env.kernels.compile import copy_block, inlined, kernel, prefetch
from tailrace.state.rows.value_kernels import bytes_length

_AHEAD = 16


@kernel
def turn_slices(words, lo, hi, at, strings, base, out):
    """Word ``c`` of every row of the slices to ``out[c]``, from ``at`` on; positions of strings plus ``base``.

    ``strings``: which of the words are positions. Returns how far it came.
    """
    place = at
    for s in range(lo.shape[0]):
        for r in range(lo[s], hi[s]):
            for c in range(out.shape[0]):
                out[c, place] = words[r, c]
            place += 1
    for b in range(strings.shape[0]):
        for i in range(at, place):
            out[strings[b], i] += base
    return place


@inlined
def _prefetch_string(positions, i, base, heap, size):
    """The first ``size`` bytes of a string that is needed soon, where it lies in the heap that begins at ``base``."""
    if i + _AHEAD < positions.shape[0]:
        ahead = positions[i + _AHEAD] - base
        if ahead >= 0 and ahead < heap.shape[0]:
            for offset in range(0, size, 64):
                prefetch(heap, ahead + offset)


@kernel
def string_lengths(positions, valid, base, heap, lengths):
    """Lengths of those strings that lie in the heap that begins at ``base``; others are left alone."""
    end = base + heap.shape[0]
    for i in range(positions.shape[0]):
        _prefetch_string(positions, i, base, heap, 64)
        if valid[i] and base <= positions[i] and positions[i] < end:
            lengths[i] = bytes_length(heap, positions[i] - base)


@kernel
def copy_strings(positions, valid, base, heap, offsets, data):
    """Bytes of those strings that lie in the heap that begins at ``base``, to where ``offsets`` says."""
    end = base + heap.shape[0]
    for i in range(positions.shape[0]):
        _prefetch_string(positions, i, base, heap, 128)
        if valid[i] and base <= positions[i] and positions[i] < end:
            copy_block(heap, positions[i] - base + 4, data, offsets[i], offsets[i + 1] - offsets[i])
