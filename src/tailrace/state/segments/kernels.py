"""Kernels of spilled records: the candidate positions of rows, and whether the records there match.

Invariants
- A record's *fingerprint* is the upper 31 bits of its hash as an unsigned number; the fingerprints of a cell ascend.
  The bit above, ``DEAD``, says that the record is not there any more. A fingerprint decides nothing by itself: keys are
  compared.

Threads: kernels only write to the arrays named ``out`` or handed in as room; any number may run at once.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
# Compiled by numba, which infers every type from the arrays it is given.

from __future__ import annotations

import numpy as np

from tailrace.env.kernels.compile import inlined, int64s_at, kernel, uint32s_at
from tailrace.state.layout import HASH, PANE
from tailrace.state.rows.value_kernels import lower_bound, same_key

DEAD = 1 << 31
FINGERPRINT_MASK = np.uint32(DEAD - 1)
_NEAR = 32
"""How far off an interpolated position may be without costing more than a binary search."""
_FINGERPRINT = np.int64(DEAD - 1)
_LOW = np.int64(0xFFFFFFFF)
_AHEAD = 16
_MANY = 8
SHARDS_AT, PANES_AT, LO_AT, HI_AT, CELLS, FINGERPRINTS_AT, FINGERPRINTS = range(7)
INDEX_WORDS = 7
"""Of a segment: addresses of the arrays of its cells, how many cells, the address of its fingerprints, and how many."""


@inlined
def fingerprint_of_hash(hash_):
    return np.int64((np.uint64(hash_) ^ np.uint64(0x8000000000000000)) >> np.uint64(33))


@kernel
def put_fingerprints(words, out):
    for i in range(words.shape[0]):
        out[i] = fingerprint_of_hash(words[i, HASH])


@inlined
def _first_with(fingerprints, at, end, fingerprint):
    """The first position from ``at`` on whose fingerprint, dead or not, is not below one; else ``end``."""
    left = end - at
    if left > _NEAR:
        # Fingerprints are as evenly distributed as hashes: interpolation nearly finds the position.
        guess = min(at + ((fingerprint * left) >> 31), end - 1)  # to find the end, callers pass more than any
        step = _NEAR
        if (np.int64(fingerprints[guess]) & _FINGERPRINT) < fingerprint:
            at = guess + 1
            while at + step <= end and (np.int64(fingerprints[at + step - 1]) & _FINGERPRINT) < fingerprint:
                at += step
                step *= 2
            left = min(step, end - at)
        else:
            while guess - step >= at and (np.int64(fingerprints[guess - step]) & _FINGERPRINT) >= fingerprint:
                guess -= step
                step *= 2
            left = min(step, guess - at)
            at = guess - left
    # A binary search without an unpredictable branch: mispredictions would take most of the time.
    while left > 1:
        half = left >> 1
        at += half * np.int64((np.int64(fingerprints[at + half - 1]) & _FINGERPRINT) < fingerprint)
        left -= half
    if left == 1 and (np.int64(fingerprints[at]) & _FINGERPRINT) < fingerprint:
        at += 1
    return at


@kernel
def fingerprint_positions(fingerprints, lo, hi, fingerprint, out):
    """For each range of ascending fingerprints, the first position that is not below one; else its end."""
    for i in range(lo.shape[0]):
        out[i] = _first_with(fingerprints, lo[i], hi[i], fingerprint)


@kernel
def candidates(
    rows, chosen, start, cell_panes, cell_lo, cell_hi, fingerprints, spilled_words, out_rows, out_at, out_count
):
    """For the chosen rows from ``start`` on, live records with their pane and fingerprint: pairs of row and position.

    The cells are those of one shard, by pane. Returns the first row not done, since room may end; ``out_count[0]`` is
    the number of pairs. Where there is no room for those of a single row, there is no progress.
    """
    count = 0
    out_count[0] = 0
    for j in range(start, chosen.shape[0]):
        i = chosen[j]
        pane = rows[i, PANE]
        low = lower_bound(cell_panes, 0, cell_panes.shape[0], pane)
        if low == cell_panes.shape[0] or cell_panes[low] != pane:
            continue
        fingerprint = fingerprint_of_hash(rows[i, HASH])
        at, end = cell_lo[low], cell_hi[low]
        at = _first_with(fingerprints, at, end, fingerprint)
        if at + _MANY < end and (np.int64(fingerprints[at + _MANY]) & _FINGERPRINT) == fingerprint:
            # Many hashes agree in their upper bits: compare the records themselves.
            high = end
            while at < high:
                middle = (at + high) >> 1
                if spilled_words[middle, HASH] < rows[i, HASH]:
                    at = middle + 1
                else:
                    high = middle
            high = at
            while high < end and spilled_words[high, HASH] == rows[i, HASH]:
                high += 1
            end = high
        while at < end and (np.int64(fingerprints[at]) & _FINGERPRINT) == fingerprint:
            if np.int64(fingerprints[at]) == fingerprint:
                if count == out_rows.shape[0]:
                    return j
                out_rows[count] = i
                out_at[count] = at
                count += 1
            at += 1
        out_count[0] = count
    return chosen.shape[0]


@kernel
def places(segments, rows, bounds, horizon, once, out_any, out_rows, out_which, out_at):
    """For rows sorted by shard, live records with their shard, pane and fingerprint: row, segment and position.

    ``segments``: of each where its index lies in memory (``SHARDS_AT`` and so on). Returns how many, or -1 where there
    was no room for all; ``out_any`` says for every row whether it has one. With ``once``, a row that has one in a
    segment is not searched in those after it, and a segment for which there is no room is left out.
    """
    count = 0
    cut = False
    for s in range(segments.shape[0]):
        cells = segments[s, CELLS]
        cell_shards, cell_panes = int64s_at(segments[s, SHARDS_AT], cells), int64s_at(segments[s, PANES_AT], cells)
        cell_lo, cell_hi = int64s_at(segments[s, LO_AT], cells), int64s_at(segments[s, HI_AT], cells)
        fingerprints = uint32s_at(segments[s, FINGERPRINTS_AT], segments[s, FINGERPRINTS])
        began, full = count, False
        for shard in range(bounds.shape[0] - 1):
            if bounds[shard] == bounds[shard + 1] or (once and full):
                continue
            first = lower_bound(cell_shards, 0, cells, shard)
            stop = lower_bound(cell_shards, first, cells, shard + 1)
            if first == stop:
                continue
            for i in range(bounds[shard], bounds[shard + 1]):
                pane = rows[i, PANE]
                if pane < horizon or (once and out_any[i]):
                    continue
                low = lower_bound(cell_panes, first, stop, pane)
                if low == stop or cell_panes[low] != pane:
                    continue
                fingerprint = fingerprint_of_hash(rows[i, HASH])
                at, end = cell_lo[low], cell_hi[low]
                at = _first_with(fingerprints, at, end, fingerprint)
                while at < end and (np.int64(fingerprints[at]) & _FINGERPRINT) == fingerprint:
                    if np.int64(fingerprints[at]) == fingerprint:
                        out_any[i] = True
                        if count == out_at.shape[0]:
                            full = True
                            out_any[i] = not once
                            break
                        out_rows[count] = i
                        out_which[count] = s
                        out_at[count] = at
                        count += 1
                    at += 1
        if full and once:
            for j in range(began, count):
                out_any[out_rows[j]] = False
            count = began
        cut |= full and not once
    return -1 if cut else count


@kernel
def matches(rows, heap, pair_rows, pair_at, spilled_words, spilled_heap, key_words, key_mask):
    """Keep the pairs whose record has the row's very key and pane, in place; return how many."""
    count = 0
    for j in range(pair_rows.shape[0]):
        if same_key(spilled_words, pair_at[j], spilled_heap, rows, pair_rows[j], heap, key_words, key_mask):
            pair_rows[count] = pair_rows[j]
            pair_at[count] = pair_at[j]
            count += 1
    return count
