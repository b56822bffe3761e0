"""Rows put in order: the one primitive under both append stores, and groups of equal keys.

``arrange`` takes slices of any number of sources and an order key for each, and copies them into one matrix in the
order of their keys. Slices of one order key keep the order in which they were given; with ``exact``, they are also
sorted by their exact keys, so that equal keys lie together and two keys with one hash are never taken for one.

Threads: pure functions; sources are only read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tailrace.state.layout import RecordLayout
from tailrace.state.rows import arrange_kernels as rk
from tailrace.state.rows.rows import Rows

_SMALL = 2000
"""So few items are sorted faster by numpy than by counting digits."""


@dataclass(frozen=True)
class Slices:
    """Ranges of rows of one source."""

    rows: Rows
    lo: np.ndarray  # int64[n]
    hi: np.ndarray  # int64[n]


@dataclass(frozen=True)
class Arranged:
    """``rows`` in order; slice ``order[i]`` (numbered through all sources) lies at rows ``starts[i]:starts[i + 1]``."""

    rows: Rows
    keys: np.ndarray  # uint64[slices], ascending
    order: np.ndarray  # int64[slices]
    starts: np.ndarray  # int64[slices + 1]
    heap_starts: np.ndarray  # int64[slices + 1]


def single_rows(rows: Rows) -> Slices:
    """Every row a slice of its own."""
    at = np.arange(len(rows), dtype=np.int64)
    return Slices(rows, at, at + 1)


def bits_for(count: int) -> int:
    """Bits that numbers below ``count`` take."""
    return max(count - 1, 0).bit_length()


def sorted_order(
    keys: np.ndarray, low_bit: int = 0, high_bit: int = 64, given: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(order, keys in that order), stable: equal keys stay as they come, or as ``given`` orders them.

    Bits outside the range must not matter: all equal, or compared later.
    """
    count = len(keys)
    a = keys.copy() if given is None else keys[given]
    order_a = np.arange(count, dtype=np.int64) if given is None else given.copy()
    if count < _SMALL:
        order = np.argsort(a >> np.uint64(low_bit), kind="stable")
        return order_a[order], a[order]
    b, order_b = np.empty(count, np.uint64), np.empty(count, np.int64)
    in_a = rk.radix_order(a, order_a, b, order_b, np.empty(rk.DIGITS, np.int64), low_bit, high_bit)
    return (order_a, a) if in_a else (order_b, b)


def low_bit_for(count: int) -> int:
    """Sorting random keys from this bit on leaves hardly a pair of them unordered: the exact pass then orders those."""
    return max(0, 64 - (2 * bits_for(count) + 8))


def arrange(
    sources: Sequence[Slices],
    keys: np.ndarray,
    layout: RecordLayout,
    *,
    exact: bool,
    with_pane: bool = False,
    low_bit: int = 0,
    high_bit: int = 64,
    given: np.ndarray | None = None,
    whole_heaps: bool = False,
) -> Arranged:
    """Copy all slices in the order of ``keys`` (uint64, one for each slice, source after source), then of ``given``.

    ``whole_heaps``: strings need not lie in order, so the sources' heaps are taken as they are, one after the other, a
    single one without a copy; for slices that hold about all rows of their sources.
    """
    put = _moved if whole_heaps else _copied
    order, in_order = sorted_order(keys, low_bit, high_bit, given)
    arranged = put(sources, order, in_order, layout)
    if not exact:
        return arranged
    if low_bit:  # keys that agree in the sorted bits may still differ below
        wrong = bool((in_order[1:] < in_order[:-1]).any())
        if wrong:
            order, in_order = sorted_order(keys, given=given)
            arranged = put(sources, order, in_order, layout)
    words, heap = arranged.rows.words, arranged.rows.heap
    how = (layout.key_words, layout.key_mask, with_pane)
    if rk.ties_in_order(arranged.keys, arranged.starts, words, heap, *how):
        return arranged
    again, room = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    rk.sort_ties(arranged.keys, arranged.starts, words, heap, *how, again, room)
    return put(sources, order[again], in_order, layout)


def _copied(sources: Sequence[Slices], order: np.ndarray, keys: np.ndarray, layout: RecordLayout) -> Arranged:
    starts, at = _placed([s.hi - s.lo for s in sources], order)
    heap_starts, heap_at = _heap_placed(sources, order, layout)
    words = np.empty((int(starts[-1]), layout.words), np.int64)
    heap = np.empty(int(heap_starts[-1]), np.uint8)
    first = 0
    for s in sources:
        end = first + len(s.lo)
        places = (at[first:end], heap_at[first:end])
        rk.copy_slices(s.rows.words, s.rows.heap, s.lo, s.hi, *places, layout.bytes_words, words, heap)
        first = end
    return Arranged(Rows(words, heap), keys, order, starts, heap_starts)


def _moved(sources: Sequence[Slices], order: np.ndarray, keys: np.ndarray, layout: RecordLayout) -> Arranged:
    """As ``_copied``, but that strings stay in their heaps; ``heap_starts`` are what they would be there."""
    starts, at = _placed([s.hi - s.lo for s in sources], order)
    heap_starts, _ = _heap_placed(sources, order, layout)
    words = np.empty((int(starts[-1]), layout.words), np.int64)
    first = base = 0
    for s in sources:
        end = first + len(s.lo)
        rk.move_slices(s.rows.words, s.lo, s.hi, at[first:end], layout.bytes_words, base, words)
        first, base = end, base + len(s.rows.heap)
    heaps = [s.rows.heap for s in sources]
    heap = heaps[0] if len(heaps) == 1 else np.concatenate(heaps) if heaps else np.empty(0, np.uint8)
    return Arranged(Rows(words, heap), keys, order, starts, heap_starts)


def _placed(lengths: Sequence[np.ndarray], order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where slices of these lengths begin, one after the other in that order, and the end; and by slice."""
    starts = np.zeros(len(order) + 1, np.int64)
    np.cumsum(_joined(lengths)[order], out=starts[1:])
    at = np.empty(len(order), np.int64)
    at[order] = starts[:-1]
    return starts, at


def _heap_placed(sources: Sequence[Slices], order: np.ndarray, layout: RecordLayout) -> tuple[np.ndarray, np.ndarray]:
    """As ``_placed``, of the bytes that the slices' strings take."""
    if not layout.has_bytes:
        zeros = np.zeros(len(order) + 1, np.int64)
        return zeros, zeros[:-1]
    sizes = [np.empty(len(s.lo), np.int64) for s in sources]
    for s, out in zip(sources, sizes):
        rk.slice_heap_bytes(s.rows.words, s.rows.heap, s.lo, s.hi, layout.bytes_words, out)
    return _placed(sizes, order)


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


# Groups --------------------------------------------------------------------------------------------------------------


def by_hash(
    sources: Sequence[Slices],
    ranks: Sequence[np.ndarray],
    rank_count: int,
    layout: RecordLayout,
    slice_order: np.ndarray | None = None,
    *,
    whole_heaps: bool = False,
) -> Arranged:
    """The rows of all slices by (rank of their slice, hash, exact key). ``whole_heaps``: see ``arrange``.

    Rows of one key keep the order of their slices: that in which they are given, or ``slice_order`` (slice numbers,
    counted through all sources).
    """
    singles, keys = [], []
    for source, rank in zip(sources, ranks):
        at = row_numbers(source.lo, source.hi)
        part = np.empty(len(at), np.uint64)
        rk.hash_keys(source.rows.words, source.lo, source.hi, rank, bits_for(rank_count), part)
        singles.append(Slices(source.rows, at, at + 1))
        keys.append(part)
    every = np.concatenate(keys) if keys else np.empty(0, np.uint64)
    given = None
    if slice_order is not None:
        lengths = _joined([source.hi - source.lo for source in sources])
        starts = np.cumsum(lengths) - lengths
        given = row_numbers(starts[slice_order], (starts + lengths)[slice_order])
    low_bit = low_bit_for(len(every))
    return arrange(singles, every, layout, exact=True, low_bit=low_bit, given=given, whole_heaps=whole_heaps)


def row_numbers(lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    """The row numbers of all slices, one after the other."""
    lengths = hi - lo
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    numbers: np.ndarray = np.arange(total, dtype=np.int64) + np.repeat(lo - (ends - lengths), lengths)
    return numbers


def take(rows: Rows, numbers: np.ndarray, layout: RecordLayout) -> Rows:
    """A copy of these rows, in this order, with their strings only."""
    if not layout.has_bytes:
        return Rows(rows.words[numbers], np.empty(0, np.uint8))
    at = np.arange(len(numbers), dtype=np.int64)
    return _copied([Slices(rows, numbers, numbers + 1)], at, at, layout).rows
