"""Kernels that find records of a table: by key, by hash alone, or by key in any pane.

Same invariants as ``kernels``. Threads: kernels only write to ``out``; any number may run at once.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
# Compiled by numba, which infers every type from the arrays it is given.

from __future__ import annotations

import numpy as np

from tailrace.env.kernels.compile import kernel, prefetch
from tailrace.state.hash_table.kernels import find
from tailrace.state.layout import HASH, PANE
from tailrace.state.rows.value_kernels import fingerprint_of

_LOW = np.int64(0xFFFFFFFF)
_AHEAD = 16


@kernel
def locate(rows, heap, lo, hi, key_words, key_mask, index, records, arena, out):
    """Write the row number of the record of each of ``rows[lo:hi]``, or -1."""
    mask = index.shape[0] - 1
    for i in range(lo, hi):
        if i + _AHEAD < hi:
            prefetch(index, fingerprint_of(rows[i + _AHEAD, HASH], rows[i + _AHEAD, PANE]) & mask)
        out[i - lo] = find(index, records, arena, rows, i, heap, key_words, key_mask)


@kernel
def with_hashes(hashes, panes, start, index, records, out, count):
    """For hashes and panes from ``start`` on, write the row numbers of all records that have both.

    Returns the first hash not done, since room may end; ``count[0]`` is the number of rows written.
    """
    mask = index.shape[0] - 1
    end = 0
    count[0] = 0
    for i in range(start, hashes.shape[0]):
        if i + _AHEAD < hashes.shape[0]:
            prefetch(index, fingerprint_of(hashes[i + _AHEAD], panes[i + _AHEAD]) & mask)
        fingerprint = fingerprint_of(hashes[i], panes[i])
        at = fingerprint & mask
        while index[at] >= 0:
            row = index[at] & _LOW
            if index[at] >> 32 == fingerprint and records[row, HASH] == hashes[i] and records[row, PANE] == panes[i]:
                if end == out.shape[0]:
                    return i
                out[end] = row
                end += 1
            at = (at + 1) & mask
        count[0] = end
    return hashes.shape[0]


@kernel
def missing(rows, heap, lo, hi, key_words, key_mask, index, records, arena, out):
    """Write the numbers of the rows ``lo:hi`` that have no record in the table; return how many."""
    count = 0
    mask = index.shape[0] - 1
    for i in range(lo, hi):
        if i + _AHEAD < hi:
            prefetch(index, fingerprint_of(rows[i + _AHEAD, HASH], rows[i + _AHEAD, PANE]) & mask)
        if find(index, records, arena, rows, i, heap, key_words, key_mask) < 0:
            out[count] = i
            count += 1
    return count


@kernel
def outlasting(rows, heap, panes, word, after, key_words, key_mask, index, records, arena, out):
    """Mark the rows whose key has, in one of the panes, a record with a ``word`` beyond ``after``."""
    mask = index.shape[0] - 1
    for i in range(rows.shape[0]):
        pane = rows[i, PANE]
        # All of them first: so that a row waits once, and not once a pane.
        for p in range(panes.shape[0]):
            prefetch(index, fingerprint_of(rows[i, HASH], panes[p]) & mask)
        for p in range(panes.shape[0]):
            rows[i, PANE] = panes[p]
            at = find(index, records, arena, rows, i, heap, key_words, key_mask)
            if at >= 0 and records[at, word] > after:
                out[i] = True
                break
        rows[i, PANE] = pane
