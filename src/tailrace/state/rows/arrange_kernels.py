"""Kernels of sorted runs: order, copy, compare and search rows. Free functions over arrays.

Invariants
- Rows are ordered by an unsigned 64-bit *order key* first; it decides nothing by itself. Rows of one order key are
  distinguished by ``compare_keys``, a total order over hash, key words and byte strings (and the pane, where asked),
  so that equal keys end up adjacent and rows of one key keep the order in which they came.
- A *slice* is a range of rows of one source. Copying goes slice by slice, so that rows which already lie together are
  copied together.

Threads: kernels only write to the arrays named ``out`` or handed in as room; any number may run at once.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
# Compiled by numba, which infers every type from the arrays it is given.

from __future__ import annotations

import numpy as np

from tailrace.env.kernels.compile import inlined, kernel, prefetch
from tailrace.state.layout import HASH, PANE, VALID
from tailrace.state.rows.value_kernels import bytes_needed, compare_bytes, copy_row_strings, lower_bound

DIGIT_BITS = 11
DIGITS = 1 << DIGIT_BITS
_AHEAD = 12


# Order ---------------------------------------------------------------------------------------------------------------


@inlined
def unsigned(hash_):
    """The hash as a number that orders without a sign."""
    return np.uint64(hash_) ^ np.uint64(0x8000000000000000)


@inlined
def _radix_pass(keys, order, keys_out, order_out, counts, bit):
    shift, mask = np.uint64(bit), np.uint64(DIGITS - 1)
    for d in range(DIGITS):
        counts[d] = 0
    for i in range(keys.shape[0]):
        counts[np.int64((keys[i] >> shift) & mask)] += 1
    if counts[np.int64((keys[0] >> shift) & mask)] == keys.shape[0]:
        return False
    total = np.int64(0)
    for d in range(DIGITS):
        here = counts[d]
        counts[d] = total
        total += here
    for i in range(keys.shape[0]):
        digit = np.int64((keys[i] >> shift) & mask)
        place = counts[digit]
        counts[digit] = place + 1
        keys_out[place] = keys[i]
        order_out[place] = order[i]
    return True


@kernel
def radix_order(keys_a, order_a, keys_b, order_b, counts, low_bit, high_bit):
    """Sort stably by bits ``low_bit`` to ``high_bit``, and ``order_a`` along. True: the result lies in the a arrays."""
    in_a = True
    for bit in range(low_bit, high_bit, DIGIT_BITS):
        if in_a:
            moved = _radix_pass(keys_a, order_a, keys_b, order_b, counts, bit)
        else:
            moved = _radix_pass(keys_b, order_b, keys_a, order_a, counts, bit)
        if moved:
            in_a = not in_a
    return in_a


@kernel
def hash_keys(words, lo, hi, ranks, rank_bits, out):
    """Order keys of the rows of slices: the slice's rank, then the (signed) hash as far as bits are left."""
    at = 0
    for s in range(lo.shape[0]):
        rank = np.uint64(0)
        if rank_bits > 0:
            rank = np.uint64(ranks[s]) << np.uint64(64 - rank_bits)
        for r in range(lo[s], hi[s]):
            out[at] = rank | (unsigned(words[r, HASH]) >> np.uint64(rank_bits))
            at += 1


# Exact keys ----------------------------------------------------------------------------------------------------------


@inlined
def compare_keys(words_a, a, heap_a, words_b, b, heap_b, key_words, key_mask, with_pane):
    """-1, 0 or 1; 0 only where hash, null keys, every word and every byte agree (and the pane, where asked)."""
    if words_a[a, HASH] != words_b[b, HASH]:
        return -1 if words_a[a, HASH] < words_b[b, HASH] else 1
    if with_pane and words_a[a, PANE] != words_b[b, PANE]:
        return -1 if words_a[a, PANE] < words_b[b, PANE] else 1
    valid_a, valid_b = words_a[a, VALID] & key_mask, words_b[b, VALID] & key_mask
    if valid_a != valid_b:
        return -1 if valid_a < valid_b else 1
    for k in range(key_words.shape[0]):
        word, bit = key_words[k, 0], key_words[k, 1]
        if bit < 0:
            if words_a[a, word] != words_b[b, word]:
                return -1 if words_a[a, word] < words_b[b, word] else 1
        elif valid_a >> bit & 1:
            order = compare_bytes(heap_a, words_a[a, word], heap_b, words_b[b, word])
            if order != 0:
                return order
    return 0


@kernel
def ties_in_order(keys, starts, words, heap, key_words, key_mask, with_pane):
    """Whether slices of one order key (``keys`` ascending, slice ``i`` starting at row ``starts[i]``) are in order."""
    for i in range(1, keys.shape[0]):
        if (
            keys[i] == keys[i - 1]
            and compare_keys(words, starts[i - 1], heap, words, starts[i], heap, key_words, key_mask, with_pane) > 0
        ):
            return False
    return True


@kernel
def sort_ties(keys, starts, words, heap, key_words, key_mask, with_pane, order, room):
    """``order``: the slice numbers, those of one order key sorted by their exact keys; stable (a merge sort)."""
    count = keys.shape[0]
    for i in range(count):
        order[i] = i
    first = 0
    while first < count:
        end = first + 1
        while end < count and keys[end] == keys[first]:
            end += 1
        width = 1
        while width < end - first:
            for low in range(first, end, 2 * width):
                middle, high = min(low + width, end), min(low + 2 * width, end)
                a, b = low, middle
                for place in range(low, high):
                    take_b = a >= middle
                    if not take_b and b < high:
                        take_b = (
                            compare_keys(
                                words, starts[order[a]], heap, words, starts[order[b]], heap,
                                key_words, key_mask, with_pane,
                            )
                            > 0
                        )  # fmt: skip
                    if take_b:
                        room[place] = order[b]
                        b += 1
                    else:
                        room[place] = order[a]
                        a += 1
                for place in range(low, high):
                    order[place] = room[place]
            width *= 2
        first = end


@kernel
def key_edges(starts, words, heap, key_words, key_mask, with_pane, out):
    """Write the number of each slice whose key is not that of the slice before it; return how many there are."""
    count = 0
    for i in range(starts.shape[0]):
        if (
            i == 0
            or compare_keys(words, starts[i - 1], heap, words, starts[i], heap, key_words, key_mask, with_pane) != 0
        ):
            out[count] = i
            count += 1
    return count


# Copying -------------------------------------------------------------------------------------------------------------


@kernel
def slice_heap_bytes(words, heap, lo, hi, bytes_words, out):
    """Bytes that the strings of each slice take."""
    for s in range(lo.shape[0]):
        total = np.int64(0)
        for r in range(lo[s], hi[s]):
            total += bytes_needed(words, r, heap, bytes_words)
        out[s] = total


@kernel
def copy_slices(words, heap, lo, hi, at, heap_at, bytes_words, out_words, out_heap):
    """Copy slice ``s`` to rows ``at[s]`` on and its strings to ``heap_at[s]`` on."""
    width = out_words.shape[1]
    for s in range(lo.shape[0]):
        if s + _AHEAD < lo.shape[0]:
            prefetch(words, lo[s + _AHEAD] * width)
            prefetch(out_words, at[s + _AHEAD] * width)
        target = at[s]
        for r in range(lo[s], hi[s]):
            for w in range(width):
                out_words[target, w] = words[r, w]
            target += 1
        if bytes_words.shape[0] > 0:
            target, end = at[s], heap_at[s]
            for r in range(lo[s], hi[s]):
                end = copy_row_strings(words, r, heap, bytes_words, out_words, target, out_heap, end)
                target += 1


@kernel
def move_slices(words, lo, hi, at, bytes_words, shift, out_words):
    """Copy slice ``s`` to rows ``at[s]`` on; its strings lie ``shift`` bytes further on than they did.

    The loop stands here once more, since both kernels are a twentieth slower where they call one function for it.
    """
    width = out_words.shape[1]
    for s in range(lo.shape[0]):
        if s + _AHEAD < lo.shape[0]:
            prefetch(words, lo[s + _AHEAD] * width)
            prefetch(out_words, at[s + _AHEAD] * width)
        target = at[s]
        for r in range(lo[s], hi[s]):
            for w in range(width):
                out_words[target, w] = words[r, w]
            for b in range(bytes_words.shape[0]):
                if words[r, VALID] >> bytes_words[b, 1] & 1:
                    out_words[target, bytes_words[b, 0]] += shift
            target += 1


@kernel
def shift_strings(words, bytes_words, by):
    """The strings lie ``by`` bytes further on."""
    for r in range(words.shape[0]):
        for b in range(bytes_words.shape[0]):
            if words[r, VALID] >> bytes_words[b, 1] & 1:
                words[r, bytes_words[b, 0]] += by


# Panes ---------------------------------------------------------------------------------------------------------------


@kernel
def distinct_panes(words, slots, used):
    """Put every pane into an open-addressing set (a power of two of slots); False where it gets more than half full."""
    mask, count = slots.shape[0] - 1, 0
    for i in range(words.shape[0]):
        pane = words[i, PANE]
        if i > 0 and words[i - 1, PANE] == pane:
            continue
        at = np.int64((np.uint64(pane) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(33)) & mask
        while used[at] and slots[at] != pane:
            at = (at + 1) & mask
        if not used[at]:
            count += 1
            if 2 * count > slots.shape[0]:
                return False
            used[at] = True
            slots[at] = pane
    return True


@kernel
def cell_keys(words, bounds, panes, out):
    """Number of each row's cell: rank of its pane among ``panes`` (ascending, complete) x shards + its shard."""
    shards = bounds.shape[0] - 1
    for s in range(shards):
        rank = 0
        for i in range(bounds[s], bounds[s + 1]):
            pane = words[i, PANE]
            if panes[rank] != pane:
                rank = lower_bound(panes, 0, panes.shape[0] - 1, pane)
            out[i] = np.uint64(rank * shards + s)


# Ranges of hashes ----------------------------------------------------------------------------------------------------


@kernel
def hash_histogram(words, heap, lo, hi, first, last, shift, bytes_words, out):
    """Add the bytes of rows with a hash in [first, last] (unsigned) to ``out[(hash - first) >> shift]``."""
    for r in range(lo, hi):
        at = unsigned(words[r, HASH])
        if at < first or at > last:
            continue
        size = np.int64(8 * words.shape[1]) + bytes_needed(words, r, heap, bytes_words)
        out[np.int64((at - first) >> np.uint64(shift))] += size


@kernel
def rows_in_hash_range(words, lo, hi, first, last, out):
    """Write the numbers of those rows whose hash lies in [first, last] (unsigned); return how many."""
    count = 0
    for r in range(lo, hi):
        at = unsigned(words[r, HASH])
        if at >= first and at <= last:
            out[count] = r
            count += 1
    return count


@kernel
def hash_bound(words, lo, hi, first):
    """In rows that are sorted by hash: the first with a hash (unsigned) of at least ``first``."""
    while lo < hi:
        middle = (lo + hi) // 2
        if unsigned(words[middle, HASH]) < first:
            lo = middle + 1
        else:
            hi = middle
    return lo
