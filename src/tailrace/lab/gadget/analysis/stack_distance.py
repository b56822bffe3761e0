"""Temporal locality: how many other keys were accessed since the last access to the same one.

That is the depth of the key in a stack which is ordered by last access; a cache of ``c`` entries that evicts the least
recently used one has it if the depth is below ``c``. First accesses have no distance. n log n.
"""

from __future__ import annotations

import numpy as np

from tailrace.lab.gadget.analysis import kernels
from tailrace.lab.gadget.analysis.numbering import numbered
from tailrace.lab.gadget.trace import Operation, Trace

NONE = -1
"""In place of the distance of a first access."""


def distances(keys: np.ndarray, frees: np.ndarray | None = None) -> np.ndarray:
    """Of each access its distance, or ``NONE``.

    ``frees``: accesses after which the key is in the stack no more, as deletes are for a cache.

    >>> distances(np.array([5, 6, 7, 5, 5, 6]))
    array([-1, -1, -1,  2,  0,  2])
    """
    ids, count = numbered(keys)
    size = len(ids)
    freed = np.zeros(size, np.bool_) if frees is None else np.ascontiguousarray(frees, np.bool_)
    out, last, tree = np.empty(size, np.int64), np.full(max(1, count), NONE, np.int64), np.zeros(size + 1, np.int64)
    kernels.stack_distances(ids, freed, last, tree, out)
    return out


def cache_distances(trace: Trace) -> np.ndarray:
    """As a cache sees it: what was deleted takes no room, and what comes after that is a first access."""
    return distances(trace.keys, trace.operations == Operation.DELETE)


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
