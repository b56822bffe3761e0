"""Temporal locality: how many other keys were accessed since the last access to the same one.

That is the depth of the key in a stack which is ordered by last access; a cache of ``c`` entries that evicts the least
recently used one has it if the depth is below ``c``. First accesses have no distance. n log n.
"""

from __future__ import annotations

import numpy as np

from tailrace.lab.gadget.analysis import kernels
from tailrace.lab.gadget.analysis.numbering import numbered
from tailrace.lab.gadget.traces.trace import Operation, Trace

NONE = -1
"""In place of the distance of a first access."""


def distances(keys: np.ndarray) -> np.ndarray:
    """Of each access its distance, or ``NONE``.

    >>> distances(np.array([5, 6, 7, 5, 5, 6]))
    array([-1, -1, -1,  2,  0,  2])
    """
    ids, count = numbered(keys)
    out, last, tree = _room(len(ids), count)
    kernels.stack_distances(ids, last, tree, out)
    return out


def cache_depths(trace: Trace) -> np.ndarray:
    """Of each access, how many entries less one a cache must have to hit; ``NONE`` where none does.

    Without deletes these are the distances. A deleted key leaves a free place in the cache, and is new when it comes
    again; a delete of a key that is not there changes nothing.
    """
    ids, count = numbered(trace.keys)
    out, last, tree = _room(len(ids), count)
    holes = np.empty(len(ids), np.int64)
    kernels.cache_depths(ids, trace.operations == Operation.DELETE, last, tree, holes, out)
    return out


def _room(size: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.empty(size, np.int64), np.full(max(1, count), NONE, np.int64), np.zeros(size + 1, np.int64)


def mean_distance(found: np.ndarray) -> float | None:
    """Over accesses that have one; None where none has."""
    known = found[found >= 0]
    return float(known.mean()) if len(known) else None


def histogram(found: np.ndarray) -> list[tuple[int, int]]:
    """By powers of two, (upper bound, how many are at most that and above the bound before): 0, 1, 3, 7, ..."""
    known = found[found >= 0]
    if not len(known):
        return []
    bits = int(known.max()).bit_length()
    bounds = [(1 << each) - 1 for each in range(bits + 1)]
    counts = np.diff(np.searchsorted(np.sort(known), bounds, side="right"), prepend=0)
    return list(zip(bounds, counts.tolist()))
