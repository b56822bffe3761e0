"""Spatial locality: how many different sequences of keys, of each length, are in a trace. Fewer is better."""

from __future__ import annotations

import numpy as np

from tailrace.lab.gadget.analysis.numbering import numbered

LENGTH_MAX = 10


def unique_sequences(keys: np.ndarray, length_max: int = LENGTH_MAX) -> list[int]:
    """Distinct contiguous sequences of length 1, 2, ... ``length_max``. Exact: sequences are numbered, not hashed.

    >>> unique_sequences(np.array([1, 2, 1, 2, 3]), 3)
    [3, 3, 3]
    """
    ids, count = numbered(keys)
    found, so_far = [count], ids
    for length in range(2, length_max + 1):
        size = len(ids) - length + 1
        if size <= 0:
            found.append(0)
            continue
        # A sequence is the one without its last key, and that key: two numbers below the trace's length.
        so_far, distinct = numbered(so_far[:size] * count + ids[length - 1 :])
        found.append(distinct)
    return found[:length_max]
