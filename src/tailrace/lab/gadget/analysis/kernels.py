"""Compiled loops of the analysis: numbering values, and stack distances. Each runs once over a trace.

Compiled on first use and kept in the kernels' cache folder, as the engine's own are; the lab may not import those.
Kernels own no memory that outlives the call. Threads: free functions.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from numba.core import config as _config

_numba_config: Any = _config
_njit: Any = numba.njit
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _cache_folder() -> str:
    chosen = os.environ.get("TAILRACE_KERNEL_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return chosen or str(Path(base) / "tailrace" / "kernels")


def kernel(function: _Function) -> _Function:
    """Compile on first call, cached on disk where the engine's kernels are."""
    before = _numba_config.CACHE_DIR
    _numba_config.CACHE_DIR = _cache_folder()
    try:
        made: _Function = _njit(function, nogil=True, cache=True, error_model="numpy")
        return made
    finally:
        _numba_config.CACHE_DIR = before


@kernel
def sum_before(tree: np.ndarray, at: int) -> int:
    """Of a Fenwick tree, what is at positions below ``at``."""
    total = 0
    while at > 0:
        total += tree[at]
        at -= at & -at
    return total


@kernel
def add_at(tree: np.ndarray, at: int, value: int) -> None:
    at += 1
    while at < len(tree):
        tree[at] += value
        at += at & -at


@kernel
def push(heap: np.ndarray, count: int, value: int) -> int:
    """Onto a heap with its largest value first. Returns how many there are now."""
    at = count
    while at > 0 and heap[(at - 1) >> 1] < value:
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = value
    return count + 1


@kernel
def pop(heap: np.ndarray, count: int) -> int:
    """Takes the largest value away."""
    count -= 1
    value, at = heap[count], 0
    while True:
        below = 2 * at + 1
        if below + 1 < count and heap[below + 1] > heap[below]:
            below += 1
        if below >= count or heap[below] <= value:
            break
        heap[at] = heap[below]
        at = below
    heap[at] = value
    return count


@kernel
def number_by_appearance(values: np.ndarray, slots: np.ndarray, seen: np.ndarray, numbers: np.ndarray) -> int:
    """Give equal values equal numbers, counted as they first appear. Returns how many there are.

    ``slots`` (all -1, a power of two, more than twice the values) is an open-addressing table of positions in ``seen``,
    which receives the distinct values.
    """
    mask = np.uint64(len(slots) - 1)
    found = 0
    for i in range(len(values)):
        value = values[i]
        mixed = np.uint64(value) * np.uint64(0x9E3779B97F4A7C15)
        at = (mixed ^ (mixed >> np.uint64(32))) & mask
        while True:
            number = slots[at]
            if number < 0:
                slots[at] = found
                seen[found] = value
                numbers[i] = found
                found += 1
                break
            if seen[number] == value:
                numbers[i] = number
                break
            at = (at + np.uint64(1)) & mask
    return found


@kernel
def stack_distances(keys: np.ndarray, last: np.ndarray, tree: np.ndarray, distances: np.ndarray) -> None:
    """Distances in a stack ordered by last access; -1 for the first access to a key.

    A Fenwick tree over the positions of the trace holds a 1 at the last access of each key, so the distance is a sum
    over the positions since then. ``last`` (all -1) is by key; ``tree`` is zero, one longer than the trace.
    """
    for i in range(len(keys)):
        before = last[keys[i]]
        if before < 0:
            distances[i] = -1
        else:
            distances[i] = sum_before(tree, i) - sum_before(tree, before + 1)
            add_at(tree, before, -1)
        last[keys[i]] = i
        add_at(tree, i, 1)


@kernel
def cache_depths(
    keys: np.ndarray, deletes: np.ndarray, last: np.ndarray, tree: np.ndarray, holes: np.ndarray, depths: np.ndarray
) -> None:
    """How large a cache must be, less one, to have the key: as ``stack_distances``, with deletes.

    A deleted key leaves a hole where it was: a cache that reaches so far has a free place then. The next key that comes
    from below, or from nowhere, fills the topmost hole: keys above it move down one place, keys below it stay. Where
    the key itself came from a place below, that becomes a hole. ``holes``: room for a heap, as long as the trace.
    """
    count = 0
    for i in range(len(keys)):
        key = keys[i]
        before = last[key]
        depths[i] = -1 if before < 0 else sum_before(tree, i) - sum_before(tree, before + 1)
        if deletes[i]:
            if before >= 0:
                last[key] = -1
                count = push(holes, count, before)
            continue
        if count > 0 and holes[0] > before:
            add_at(tree, holes[0], -1)
            count = pop(holes, count)
            if before >= 0:
                count = push(holes, count, before)
        elif before >= 0:
            add_at(tree, before, -1)
        last[key] = i
        add_at(tree, i, 1)


@kernel
def held_bytes(
    keys: np.ndarray, operations: np.ndarray, sizes: np.ndarray, held: np.ndarray, before: np.ndarray
) -> int:
    """``before``: how large the key's value was at each access. A put replaces it, a merge adds, a delete ends it.

    ``held`` (zero) is by key. Returns the most that all values took together. Operations are numbered as in a trace.
    """
    total = most = 0
    for i in range(len(keys)):
        key = keys[i]
        size = held[key]
        before[i] = size
        if operations[i] == 1:
            total += sizes[i] - size
            held[key] = sizes[i]
        elif operations[i] == 2:
            total += sizes[i]
            held[key] = size + sizes[i]
        elif operations[i] == 3:
            total -= size
            held[key] = 0
        most = max(most, total)
    return most


@kernel
def listed_bytes(
    keys: np.ndarray, operations: np.ndarray, sizes: np.ndarray, held: np.ndarray, before: np.ndarray
) -> None:
    """As ``held_bytes``, in a store that only appends: a put adds to what is there, too."""
    for i in range(len(keys)):
        key = keys[i]
        before[i] = held[key]
        if operations[i] == 3:
            held[key] = 0
        else:
            held[key] += sizes[i]
