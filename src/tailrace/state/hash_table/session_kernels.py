"""Kernels that follow a key from pane to pane: the records that make one session.

Panes are as wide as the gap. So all rows of a key in one pane are of one session; of two adjacent panes they are if the
first of the later pane is at most the gap after the last of the earlier one; and of panes further apart only by way of
those between. ``low`` and ``high`` are the words of a record that hold its first and its last event time.

Same invariants as ``kernels``.
"""

from __future__ import annotations

import numpy as np

from tailrace.env.kernels.compile import inlined, kernel
from tailrace.state.hash_table.kernels import find
from tailrace.state.layout import PANE


@inlined
def _neighbour(at, step, gap, low, high, key_words, key_mask, index, records, arena, scratch):
    """The record of the same session in the pane ``step`` further on, or -1."""
    for w in range(scratch.shape[1]):
        scratch[0, w] = records[at, w]
    scratch[0, PANE] += step
    other = find(index, records, arena, scratch, 0, arena, key_words, key_mask)
    if other < 0:
        return other
    if step > 0:
        together = records[other, low] - records[at, high] <= gap
    else:
        together = records[at, low] - records[other, high] <= gap
    return other if together else np.int64(-1)


@kernel
def session_rows(
    chosen, first, ended, gap, low, high, key_words, key_mask, index, records, arena, scratch, seen,
    out_rows, out_sessions, ends,
):  # fmt: skip
    """The records of the sessions of ``chosen[first:]``, each session once, its newest pane first.

    ``ended``: only sessions whose newest record is among the chosen. Writes row numbers and numbers of sessions from
    ``ends`` (rows, sessions) on, and leaves there where it ended; returns how many of the chosen are done: fewer than
    all where the room ran out. ``seen`` is 0 for rows not written yet.
    """
    count, number = ends[0], ends[1]
    for i in range(first, chosen.shape[0]):
        at = chosen[i]
        if seen[at]:
            continue
        after = _neighbour(at, gap, gap, low, high, key_words, key_mask, index, records, arena, scratch)
        if ended and after >= 0:
            continue
        while after >= 0:
            at = after
            after = _neighbour(at, gap, gap, low, high, key_words, key_mask, index, records, arena, scratch)
        begin = count
        while at >= 0:
            if count == out_rows.shape[0]:
                for c in range(begin, count):
                    seen[out_rows[c]] = 0
                ends[0], ends[1] = begin, number
                return i
            seen[at] = 1
            out_rows[count] = at
            out_sessions[count] = number
            count += 1
            at = _neighbour(at, -gap, gap, low, high, key_words, key_mask, index, records, arena, scratch)
        number += 1
    ends[0], ends[1] = count, number
    return chosen.shape[0]
