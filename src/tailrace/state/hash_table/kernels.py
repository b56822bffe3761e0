"""Kernels of the hash table: find, insert, merge. Free functions over arrays.

Invariants
- ``index`` has a power-of-two length, is at most half full, and holds ``fingerprint << 32 | row`` or -1. The home of an
  entry is ``fingerprint & mask``, so that moving entries never touches records. Deletion shifts back: there are no
  tombstones.
- Two keys are one only if every word, the key's valid bits and every byte agree; a hash decides nothing by itself.
- The rows of a pane form a list through ``links``; the newest row is its head. ``panes`` maps a pane to (head, rows,
  dead) in an open-addressing table of its own, at most half full. Removed records are taken from the index at once but
  stay in the list, dead, until nothing can undo their removal and most of the list is dead: ``rows`` counts the others.
- The words of an accumulator whose valid bit is not set are 0, in records and in partials alike.
- ``merge_rows`` checks all room before it changes anything, so it can stop at any row, be given room, and go on.
- ``records`` has one word more than a partial, the last: the stamp (1 or more) of the record's newest change, -1 while
  it is free. Of a dead record it is ``-2 - stamp`` while its removal can be undone, then ``UNLINK``.
- A record's first change under a ``stamp`` saves its image to the undo log; ``undo_rows`` has ``row`` for a saved image
  and ``~row`` for a record made new. Undone in reverse, the newest row of a pane is always its head.
- The arena only grows while undo logs exist, so the byte strings of saved images stay where they are.

Threads: a table is used by one thread at a time; different tables may be used at once.
"""

from __future__ import annotations

import numpy as np

from tailrace.env.kernels.compile import inlined, kernel, prefetch
from tailrace.state.layout import (
    ADD_FLOAT,
    ADD_INT,
    ADD_INT128,
    ADD_INT_CHECKED,
    BIT,
    BIT2,
    HASH,
    K_BYTES,
    K_FLOAT64,
    K_INT64,
    MIN_MAX,
    MOMENTS,
    OP,
    PANE,
    SIGN,
    TAKE,
    VALID,
    VALUE_KIND,
    WORD,
)
from tailrace.state.rows.value_kernels import (
    as_double,
    as_word,
    bytes_length,
    bytes_needed,
    compare_values,
    copy_bytes,
    fingerprint_of,
    same_key,
)

# Positions in a table's ``counters``.
ROWS_END, LIVE, FREE_END, ARENA_END, PANES, UNDO_END, IMAGES_END, ARENA_WASTE, STATUS, STATUS_AT = range(10)
COUNTERS = 10
# Why ``merge_rows`` stopped early.
DONE, NEED_ROWS, NEED_ARENA, NEED_PANES, OVERFLOW = range(5)
# Columns of ``panes``.
PANE_START, PANE_HEAD, PANE_ROWS, PANE_DEAD = 0, 1, 2, 3
PANE_WORDS = 4
EMPTY_PANE = -1
# What stands in place of a stamp.
FREE, UNLINK = -1, -2

_FAR, _NEAR = 16, 8
_LOW = np.int64(0xFFFFFFFF)
_TEN38_HIGH = np.int64(0x4B3B4CA85A86C47A)
_TEN38_LOW = np.uint64(0x098A224000000000)


@inlined
def find(index, records, arena, rows, i, heap, key_words, key_mask):
    """The record's row number, or -1."""
    mask = index.shape[0] - 1
    fingerprint = fingerprint_of(rows[i, HASH], rows[i, PANE])
    at = fingerprint & mask
    while index[at] >= 0:
        entry = index[at]
        if entry >> 32 == fingerprint:
            found = entry & _LOW
            if same_key(records, found, arena, rows, i, heap, key_words, key_mask):
                return found
        at = (at + 1) & mask
    return np.int64(-1)


@inlined
def index_insert(index, fingerprint, row):
    mask = index.shape[0] - 1
    at = fingerprint & mask
    while index[at] >= 0:
        at = (at + 1) & mask
    index[at] = fingerprint << 32 | row


@inlined
def index_remove(index, fingerprint, row):
    mask = index.shape[0] - 1
    entry = fingerprint << 32 | row
    hole = fingerprint & mask
    while index[hole] != entry:
        hole = (hole + 1) & mask
    at = (hole + 1) & mask
    while index[at] >= 0:
        home = (index[at] >> 32) & mask
        if ((at - home) & mask) >= ((at - hole) & mask):
            index[hole] = index[at]
            hole = at
        at = (at + 1) & mask
    index[hole] = -1


@inlined
def pane_find(panes, pane):
    """The pane's position in the directory, or the free one where it would go."""
    mask = panes.shape[0] - 1
    at = fingerprint_of(0, pane) & mask
    while panes[at, PANE_HEAD] != EMPTY_PANE and panes[at, PANE_START] != pane:
        at = (at + 1) & mask
    return at


@inlined
def pane_put(panes, place, source, at):
    """Copy a directory entry. (Word by word: kernels run without numba's memory manager.)"""
    for c in range(PANE_WORDS):
        panes[place, c] = source[at, c]


@inlined
def pane_remove(panes, place):
    mask = panes.shape[0] - 1
    hole = place
    at = (hole + 1) & mask
    while panes[at, PANE_HEAD] != EMPTY_PANE:
        home = fingerprint_of(0, panes[at, PANE_START]) & mask
        if ((at - home) & mask) >= ((at - hole) & mask):
            pane_put(panes, hole, panes, at)
            hole = at
        at = (at + 1) & mask
    panes[hole, PANE_HEAD] = EMPTY_PANE


@inlined
def add_int128(records, r, rows, i, word):
    """Add in place; False where the sum has 39 digits or more."""
    low = np.uint64(records[r, word]) + np.uint64(rows[i, word])
    carry = np.int64(1) if low < np.uint64(rows[i, word]) else np.int64(0)
    high_a, high_b = records[r, word + 1], rows[i, word + 1]
    high = high_a + high_b + carry
    records[r, word] = np.int64(low)
    records[r, word + 1] = high
    if (high_a >= 0) == (high_b >= 0) and (high >= 0) != (high_a >= 0):
        return False
    if high >= 0:
        return high < _TEN38_HIGH or (high == _TEN38_HIGH and low < _TEN38_LOW)
    # -10^38 in two's complement is (~high, -low) of 10^38.
    limit_high, limit_low = ~_TEN38_HIGH, np.uint64(0) - _TEN38_LOW
    return high > limit_high or (high == limit_high and low > limit_low)


@inlined
def merge_moments(records, r, rows, i, word):
    n_a, mean_a, m2_a = as_double(records[r, word]), as_double(records[r, word + 1]), as_double(records[r, word + 2])
    n_b, mean_b, m2_b = as_double(rows[i, word]), as_double(rows[i, word + 1]), as_double(rows[i, word + 2])
    n = n_a + n_b
    delta = mean_b - mean_a
    share = delta / n
    records[r, word] = as_word(n)
    records[r, word + 1] = as_word(mean_a + share * n_b)
    records[r, word + 2] = as_word(m2_a + m2_b + delta * share * n_a * n_b)


@inlined
def set_value(records, r, arena, rows, i, heap, word, kind, present, counters):
    """Take over the row's value; byte strings go to the end of the arena."""
    if kind == K_BYTES:
        if present:
            end = counters[ARENA_END]
            counters[ARENA_END] = copy_bytes(heap, rows[i, word], arena, end)
            records[r, word] = end
        return
    records[r, word] = rows[i, word]
    if kind != K_INT64 and kind != K_FLOAT64:
        records[r, word + 1] = rows[i, word + 1]


@inlined
def merge_record(records, r, arena, rows, i, heap, program, counters):
    """Merge a partial into a record. False where a checked sum overflows; ``counters[STATUS_AT]`` then says which."""
    fits = True
    for a in range(program.shape[0]):
        op, word, kind = program[a, OP], program[a, WORD], program[a, VALUE_KIND]
        bit = np.int64(1) << program[a, BIT]
        if rows[i, VALID] & bit == 0:
            continue
        there = records[r, VALID] & bit != 0
        records[r, VALID] |= bit
        if op == ADD_INT:
            records[r, word] += rows[i, word]
        elif op == ADD_INT_CHECKED:
            x, y = records[r, word], rows[i, word]
            total = x + y
            if (x >= 0) == (y >= 0) and (total >= 0) != (x >= 0):
                fits = False
                counters[STATUS_AT] = a
            records[r, word] = total
        elif op == ADD_FLOAT:
            if there:
                records[r, word] = as_word(as_double(records[r, word]) + as_double(rows[i, word]))
            else:
                records[r, word] = rows[i, word]
        elif op == ADD_INT128:
            bit2 = np.int64(1) << program[a, BIT2]
            if not add_int128(records, r, rows, i, word) or rows[i, VALID] & bit2 != 0:
                records[r, VALID] |= bit2
                if program[a, SIGN] > 0:
                    fits = False
                    counters[STATUS_AT] = a
        elif op == MIN_MAX:
            if there:
                order = compare_values(kind, rows, i, heap, records, r, arena, word)
                if order * program[a, SIGN] <= 0:
                    continue
                if kind == K_BYTES:
                    counters[ARENA_WASTE] += 4 + bytes_length(arena, records[r, word])
            set_value(records, r, arena, rows, i, heap, word, kind, True, counters)
        elif op == MOMENTS:
            if there:
                merge_moments(records, r, rows, i, word)
            else:
                for part in range(3):
                    records[r, word + part] = rows[i, word + part]
        elif op == TAKE:
            bit2 = np.int64(1) << program[a, BIT2]
            theirs = rows[i, VALID] & bit2 != 0
            if kind == K_BYTES and records[r, VALID] & bit2 != 0:
                counters[ARENA_WASTE] += 4 + bytes_length(arena, records[r, word])
            set_value(records, r, arena, rows, i, heap, word, kind, theirs, counters)
            if theirs:
                records[r, VALID] |= bit2
            else:
                records[r, VALID] &= ~bit2
        else:  # FIRST_LAST
            bit2 = np.int64(1) << program[a, BIT2]
            mine, theirs = records[r, VALID] & bit2 != 0, rows[i, VALID] & bit2 != 0
            if there:
                order = 0
                if rows[i, word] != records[r, word]:
                    order = -1 if rows[i, word] < records[r, word] else 1
                elif mine != theirs:
                    order = 1 if theirs else -1
                elif mine:
                    order = compare_values(kind, rows, i, heap, records, r, arena, word + 1)
                if order * program[a, SIGN] <= 0:
                    continue
                if kind == K_BYTES and mine:
                    counters[ARENA_WASTE] += 4 + bytes_length(arena, records[r, word + 1])
            records[r, word] = rows[i, word]
            set_value(records, r, arena, rows, i, heap, word + 1, kind, theirs, counters)
            if theirs:
                records[r, VALID] |= bit2
            else:
                records[r, VALID] &= ~bit2
    return fits


@inlined
def take_row(counters, free, capacity):
    """A free row number, or -1."""
    if counters[FREE_END] > 0:
        counters[FREE_END] -= 1
        return np.int64(free[counters[FREE_END]])
    if counters[ROWS_END] < capacity:
        counters[ROWS_END] += 1
        return counters[ROWS_END] - 1
    return np.int64(-1)


@kernel
def merge_rows(
    rows, heap, lo, hi, replace, stamp,
    program, bytes_words, key_words, key_mask,
    index, records, links, free, panes, arena, undo_rows, undo_images, counters,
):  # fmt: skip
    """Merge ``rows[lo:hi]``; return the first row not done. ``replace``: the row's value becomes the record's.

    The undo arrays must have room for ``hi - lo`` more entries. ``counters[STATUS]`` says why it stopped early; after
    OVERFLOW the only way on is to undo.
    """
    counters[STATUS] = DONE
    words = rows.shape[1]
    mask = index.shape[0] - 1
    for i in range(lo, hi):
        # What rows some way ahead will touch is fetched now: a row then waits for none of it.
        if i + _FAR < hi:
            prefetch(index, fingerprint_of(rows[i + _FAR, HASH], rows[i + _FAR, PANE]) & mask)
        if i + _NEAR < hi:
            soon = index[fingerprint_of(rows[i + _NEAR, HASH], rows[i + _NEAR, PANE]) & mask]
            if soon >= 0:
                prefetch(records, (soon & _LOW) * records.shape[1])
        if counters[ARENA_END] + bytes_needed(rows, i, heap, bytes_words) > arena.shape[0]:
            counters[STATUS] = NEED_ARENA
            return i
        at = find(index, records, arena, rows, i, heap, key_words, key_mask)
        if at >= 0:
            if records[at, words] != stamp:
                records[at, words] = stamp
                image = counters[IMAGES_END]
                for w in range(words):
                    undo_images[image, w] = records[at, w]
                counters[IMAGES_END] = image + 1
                undo_rows[counters[UNDO_END]] = at
                counters[UNDO_END] += 1
            if replace:
                for b in range(bytes_words.shape[0]):
                    if records[at, VALID] >> bytes_words[b, 1] & 1:
                        counters[ARENA_WASTE] += 4 + bytes_length(arena, records[at, bytes_words[b, 0]])
                for w in range(words):
                    records[at, w] = rows[i, w]
                place_bytes(records, at, arena, heap, bytes_words, counters)
            elif not merge_record(records, at, arena, rows, i, heap, program, counters):
                counters[STATUS] = OVERFLOW
                return i
            continue
        place = pane_find(panes, rows[i, PANE])
        fresh = panes[place, PANE_HEAD] == EMPTY_PANE
        if fresh and (counters[PANES] + 1) * 2 > panes.shape[0]:
            counters[STATUS] = NEED_PANES
            return i
        at = take_row(counters, free, records.shape[0])
        if at < 0:
            counters[STATUS] = NEED_ROWS
            return i
        for w in range(words):
            records[at, w] = rows[i, w]
        place_bytes(records, at, arena, heap, bytes_words, counters)
        records[at, words] = stamp
        undo_rows[counters[UNDO_END]] = ~at
        counters[UNDO_END] += 1
        index_insert(index, fingerprint_of(rows[i, HASH], rows[i, PANE]), at)
        if fresh:
            panes[place, PANE_START] = rows[i, PANE]
            panes[place, PANE_ROWS] = 0
            panes[place, PANE_DEAD] = 0
            links[at] = -1
            counters[PANES] += 1
        else:
            links[at] = panes[place, PANE_HEAD]
        panes[place, PANE_HEAD] = at
        panes[place, PANE_ROWS] += 1
        counters[LIVE] += 1
    return hi


@inlined
def place_bytes(records, r, arena, heap, bytes_words, counters):
    for b in range(bytes_words.shape[0]):
        if records[r, VALID] >> bytes_words[b, 1] & 1:
            end = counters[ARENA_END]
            counters[ARENA_END] = copy_bytes(heap, records[r, bytes_words[b, 0]], arena, end)
            records[r, bytes_words[b, 0]] = end
