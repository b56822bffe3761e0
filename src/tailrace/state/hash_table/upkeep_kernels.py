"""Kernels that maintain a table or read it in bulk: rehash, expire, remove, undo, release, repack, gather.

Same invariants as ``kernels``. ``repack`` only moves rows: lists of panes keep their order, so that undoing finds the
newest row of a pane at its head as before.
"""

from __future__ import annotations

import numpy as np

from tailrace.env.kernels.compile import inlined, kernel, prefetch
from tailrace.state.hash_table.kernels import (
    ARENA_END,
    ARENA_WASTE,
    EMPTY_PANE,
    FREE,
    FREE_END,
    IMAGES_END,
    LIVE,
    PANE_DEAD,
    PANE_HEAD,
    PANE_ROWS,
    PANE_START,
    PANE_WORDS,
    PANES,
    UNDO_END,
    UNLINK,
    find,
    index_insert,
    index_remove,
    pane_find,
    pane_put,
    pane_remove,
)
from tailrace.state.layout import HASH, PANE, VALID
from tailrace.state.rows.value_kernels import bytes_length, copy_row_strings, fingerprint_of

_LOW = np.int64(0xFFFFFFFF)


@kernel
def rehash(old, new):
    """Move every entry of a smaller index; records are not touched."""
    for at in range(old.shape[0]):
        entry = old[at]
        if entry >= 0:
            index_insert(new, entry >> 32, entry & _LOW)


@kernel
def rehash_panes(old, new):
    for at in range(old.shape[0]):
        if old[at, PANE_HEAD] != EMPTY_PANE:
            pane_put(new, pane_find(new, old[at, PANE_START]), old, at)


@kernel
def list_panes(panes, below, out):
    """Write the panes that start before ``below`` as (start, head, rows, dead); return how many."""
    count = 0
    for at in range(panes.shape[0]):
        if panes[at, PANE_HEAD] != EMPTY_PANE and panes[at, PANE_START] < below:
            for c in range(PANE_WORDS):
                out[count, c] = panes[at, c]
            count += 1
    return count


@kernel
def pane_rows(chosen, records, links, out):
    """Write the row numbers of the chosen panes (from ``list_panes``), pane by pane, oldest row first."""
    stamp = records.shape[1] - 1
    end = 0
    for p in range(chosen.shape[0]):
        end += chosen[p, PANE_ROWS]
        at = chosen[p, PANE_HEAD]
        place = end
        while at >= 0:
            if records[at, stamp] >= 0:
                place -= 1
                out[place] = at
            at = links[at]
    return end


@kernel
def expire(chosen, index, records, links, panes, counters):
    """Take the chosen panes out of the index and the directory. Their rows stay as they are until released."""
    stamp = records.shape[1] - 1
    for p in range(chosen.shape[0]):
        at = chosen[p, PANE_HEAD]
        while at >= 0:
            if records[at, stamp] >= 0:
                index_remove(index, fingerprint_of(records[at, HASH], records[at, PANE]), at)
            at = links[at]
        pane_remove(panes, pane_find(panes, chosen[p, PANE_START]))
        counters[LIVE] -= chosen[p, PANE_ROWS]
        counters[PANES] -= 1


@kernel
def remove(chosen, index, records, panes, counters):
    """Take single records out of the index, and mark them dead; stop at a row that holds none. Returns how many."""
    stamp = records.shape[1] - 1
    for i in range(chosen.shape[0]):
        at = chosen[i]
        if records[at, stamp] < 0:
            return i
        index_remove(index, fingerprint_of(records[at, HASH], records[at, PANE]), at)
        records[at, stamp] = UNLINK - records[at, stamp]
        place = pane_find(panes, records[at, PANE])
        panes[place, PANE_ROWS] -= 1
        panes[place, PANE_DEAD] += 1
        counters[LIVE] -= 1
    return chosen.shape[0]


@kernel
def undo(
    expired, removed, arena_end, arena_waste, index, records, links, free, panes, undo_rows, undo_images, counters
):  # fmt: skip
    """Back to before the log's epoch: what was expired or removed returns, images are restored, new records go.

    A record that was made new in place of a removed one is for a moment beside it in the index; entries name their
    row, so the right one goes.
    """
    stamp = records.shape[1] - 1
    for p in range(expired.shape[0]):
        pane_put(panes, pane_find(panes, expired[p, PANE_START]), expired, p)
        counters[PANES] += 1
        counters[LIVE] += expired[p, PANE_ROWS]
        at = expired[p, PANE_HEAD]
        while at >= 0:
            if records[at, stamp] >= 0:
                index_insert(index, fingerprint_of(records[at, HASH], records[at, PANE]), at)
            at = links[at]
    for i in range(removed.shape[0]):
        at = removed[i]
        index_insert(index, fingerprint_of(records[at, HASH], records[at, PANE]), at)
        records[at, stamp] = UNLINK - records[at, stamp]
        place = pane_find(panes, records[at, PANE])
        panes[place, PANE_ROWS] += 1
        panes[place, PANE_DEAD] -= 1
        counters[LIVE] += 1
    image = counters[IMAGES_END]
    for u in range(counters[UNDO_END] - 1, -1, -1):
        at = undo_rows[u]
        if at >= 0:
            image -= 1
            for w in range(undo_images.shape[1]):
                records[at, w] = undo_images[image, w]
            continue
        at = ~at
        index_remove(index, fingerprint_of(records[at, HASH], records[at, PANE]), at)
        place = pane_find(panes, records[at, PANE])
        panes[place, PANE_HEAD] = links[at]
        panes[place, PANE_ROWS] -= 1
        if panes[place, PANE_ROWS] + panes[place, PANE_DEAD] == 0:
            pane_remove(panes, place)
            counters[PANES] -= 1
        records[at, stamp] = FREE
        free[counters[FREE_END]] = at
        counters[FREE_END] += 1
        counters[LIVE] -= 1
    counters[UNDO_END] = 0
    counters[IMAGES_END] = 0
    counters[ARENA_END] = arena_end
    counters[ARENA_WASTE] = arena_waste


@inlined
def give_back(at, records, free, arena, bytes_words, counters):
    """The row is free for use."""
    for b in range(bytes_words.shape[0]):
        if records[at, VALID] >> bytes_words[b, 1] & 1:
            counters[ARENA_WASTE] += 4 + bytes_length(arena, records[at, bytes_words[b, 0]])
    records[at, records.shape[1] - 1] = FREE
    free[counters[FREE_END]] = at
    counters[FREE_END] += 1


@kernel
def release(expired, removed, records, links, free, panes, arena, bytes_words, counters):
    """Give the rows of expired panes and removed records back for use: nothing can undo that any more.

    A removed record is unlinked from its pane's list only when most of the list is dead, so that walking the lists
    costs no more than removing did. Where a later log has expired the pane, the record goes when that is released.
    """
    stamp = records.shape[1] - 1
    for i in range(removed.shape[0]):
        records[removed[i], stamp] = UNLINK
    for i in range(removed.shape[0]):
        if records[removed[i], stamp] != UNLINK:
            continue  # given back with others of its pane
        place = pane_find(panes, records[removed[i], PANE])
        if panes[place, PANE_HEAD] == EMPTY_PANE or panes[place, PANE_DEAD] <= panes[place, PANE_ROWS]:
            continue
        before = np.int64(-1)
        at = panes[place, PANE_HEAD]
        while at >= 0:
            after = np.int64(links[at])
            if records[at, stamp] == UNLINK:
                if before < 0:
                    panes[place, PANE_HEAD] = after
                else:
                    links[before] = after
                panes[place, PANE_DEAD] -= 1
                give_back(at, records, free, arena, bytes_words, counters)
            else:
                before = at
            at = after
        if panes[place, PANE_ROWS] + panes[place, PANE_DEAD] == 0:
            pane_remove(panes, place)
            counters[PANES] -= 1
    for p in range(expired.shape[0]):
        at = expired[p, PANE_HEAD]
        while at >= 0:
            give_back(at, records, free, arena, bytes_words, counters)
            at = links[at]


@kernel
def move_strings(matrix, stamp_word, count, bytes_words, arena, fresh, end):
    """Copy the strings of all rows to a fresh arena and point the rows there; return its end.

    Free rows are left out; a ``stamp_word`` below 0 says that rows have no stamp.
    """
    for at in range(count):
        if stamp_word >= 0 and matrix[at, stamp_word] == FREE:
            continue
        end = copy_row_strings(matrix, at, arena, bytes_words, matrix, at, fresh, end)
    return end


@kernel
def gather_columns(records, arena, chosen, bytes_words, out, at, out_heap, heap_end):
    """As ``copy_out``, word by word to the rows of ``out[words, n]``: what Arrow is made of."""
    width = records.shape[1]
    out_rows = out.T
    for i in range(chosen.shape[0]):
        if i + 8 < chosen.shape[0]:
            prefetch(records, chosen[i + 8] * width)
        source, target = chosen[i], at + i
        for w in range(out.shape[0]):
            out[w, target] = records[source, w]
        heap_end = copy_row_strings(records, source, arena, bytes_words, out_rows, target, out_heap, heap_end)
    return heap_end


@kernel
def find_panes(
    targets, heap, offsets, key_words, key_mask, index, records, arena, out_rows, out_windows
):  # fmt: skip
    """For each target (a key whose pane is a window's start): the live records of that key in that window.

    The window's panes start ``offsets`` after it, ascending. Writes row numbers and window starts in their order;
    returns how many. The out arrays must have room for every pane of every target.
    """
    count = 0
    for i in range(targets.shape[0]):
        start = targets[i, PANE]
        for p in range(offsets.shape[0]):
            targets[i, PANE] = start + offsets[p]
            at = find(index, records, arena, targets, i, heap, key_words, key_mask)
            if at >= 0:
                out_rows[count] = at
                out_windows[count] = start
                count += 1
        targets[i, PANE] = start
    return count


@kernel
def repack(moved, records, links, index, panes, out_records, out_links, out_index, out_panes):
    """A table of the rows that have a new number in ``moved`` (others have -1); return how many panes are left.

    Lists skip rows without a new number. ``out_index`` and ``out_panes`` must be empty.
    """
    width = records.shape[1]
    for row in range(moved.shape[0]):
        place = moved[row]
        if place < 0:
            continue
        for w in range(width):
            out_records[place, w] = records[row, w]
        after = np.int64(links[row])
        while after >= 0 and moved[after] < 0:
            after = np.int64(links[after])
        out_links[place] = moved[after] if after >= 0 else -1
    for at in range(index.shape[0]):
        entry = index[at]
        if entry >= 0 and moved[entry & _LOW] >= 0:
            index_insert(out_index, entry >> 32, moved[entry & _LOW])
    count = 0
    for at in range(panes.shape[0]):
        if panes[at, PANE_HEAD] == EMPTY_PANE:
            continue
        rows, dead = np.int64(0), np.int64(0)
        first = np.int64(-1)
        row = panes[at, PANE_HEAD]
        while row >= 0:
            if moved[row] >= 0:
                if first < 0:
                    first = moved[row]
                if records[row, width - 1] >= 0:
                    rows += 1
                else:
                    dead += 1
            row = np.int64(links[row])
        if rows + dead > 0:
            place = pane_find(out_panes, panes[at, PANE_START])
            out_panes[place, PANE_START] = panes[at, PANE_START]
            out_panes[place, PANE_HEAD] = first
            out_panes[place, PANE_ROWS] = rows
            out_panes[place, PANE_DEAD] = dead
            count += 1
    return count
