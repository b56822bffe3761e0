"""Rows of one shard in ranges of hashes: a shard that is too large for one piece is cut, all rows of a key together.

A hash range is a pair (first, last), both included, of hashes as unsigned numbers (the sign bit turned), so that ranges
ascend as signed hashes do. Ranges are found by counting bytes in at most 1024 buckets of equal width, and again inside
a bucket that is too large alone: bounded memory however large the shard is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tailrace.state.append.pane_runs import cuts
from tailrace.state.layout import RecordLayout
from tailrace.state.rows import arrange_kernels as rk
from tailrace.state.rows.arrange import Slices
from tailrace.state.rows.rows import Rows

HashRange = tuple[int, int]
EVERY_HASH: HashRange = (0, 2**64 - 1)

_BUCKET_BITS = 10


def hash_ranges(
    slices: Sequence[Slices], layout: RecordLayout, bytes_max: int, inside: HashRange = EVERY_HASH
) -> Iterator[HashRange]:
    """Ranges that hold rows, ascending, each of at most ``bytes_max`` unless it is a single hash."""
    first, last = inside
    shift = max(0, (last - first).bit_length() - _BUCKET_BITS)
    sizes = np.zeros(1 << _BUCKET_BITS, np.int64)
    for part in slices:
        for lo, hi in zip(part.lo.tolist(), part.hi.tolist()):
            rk.hash_histogram(
                part.rows.words, part.rows.heap, lo, hi,
                np.uint64(first), np.uint64(last), shift, layout.bytes_words, sizes,
            )  # fmt: skip
    for low, high in cuts(sizes, bytes_max):
        total = int(sizes[low:high].sum())
        if not total:
            continue
        found = (first + (low << shift), min(last, first + (high << shift) - 1))
        if total > bytes_max and shift:
            yield from hash_ranges(slices, layout, bytes_max, found)
        else:
            yield found


def narrow(
    rows: Rows, lo: np.ndarray, hi: np.ndarray, hashes: HashRange, *, sorted_by_hash: bool
) -> tuple[Slices, np.ndarray]:
    """The rows of slices that lie in a hash range, as slices, and the number of the slice that each comes from."""
    first, last = np.uint64(hashes[0]), np.uint64(hashes[1])
    if sorted_by_hash:
        low = [rk.hash_bound(rows.words, a, b, first) for a, b in zip(lo.tolist(), hi.tolist())]
        high = hi if hashes[1] == EVERY_HASH[1] else [
            rk.hash_bound(rows.words, a, b, last + np.uint64(1)) for a, b in zip(low, hi.tolist())
        ]  # fmt: skip
        return Slices(rows, np.array(low, np.int64), np.array(high, np.int64)), np.arange(len(lo))
    found, numbers = [], []
    for number, (a, b) in enumerate(zip(lo.tolist(), hi.tolist())):
        room = np.empty(b - a, np.int64)
        chosen = room[: rk.rows_in_hash_range(rows.words, a, b, first, last, room)]
        found.append(chosen)
        numbers.append(np.full(len(chosen), number, np.int64))
    every = np.concatenate(found) if found else np.empty(0, np.int64)
    return Slices(rows, every, every + 1), np.concatenate(numbers) if numbers else np.empty(0, np.int64)
