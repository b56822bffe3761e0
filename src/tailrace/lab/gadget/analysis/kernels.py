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
def stack_distances(
    keys: np.ndarray, frees: np.ndarray, last: np.ndarray, tree: np.ndarray, distances: np.ndarray
) -> None:
    """Distances in an LRU stack; -1 for the first access to a key, and for the first after an access that frees it.

    A Fenwick tree over the positions of the trace holds a 1 at the last access of each key that is in the stack, so the
    distance is a sum over the positions since then. ``last`` (all -1) is by key, ``tree`` is zero, one longer than the
    trace.
    """
    size = len(keys)
    for i in range(size):
        key = keys[i]
        before = last[key]
        if before < 0:
            distances[i] = -1
        else:
            total = 0
            at = i
            while at > 0:  # ones at positions 0 .. i - 1
                total += tree[at]
                at -= at & -at
            at = before + 1
            while at > 0:  # and at 0 .. before
                total -= tree[at]
                at -= at & -at
            distances[i] = total
            at = before + 1
            while at <= size:
                tree[at] -= 1
                at += at & -at
        if frees[i]:
            last[key] = -1
        else:
            last[key] = i
            at = i + 1
            while at <= size:
                tree[at] += 1
                at += at & -at
