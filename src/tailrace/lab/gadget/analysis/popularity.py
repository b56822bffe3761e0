"""Popularity of keys: how many are accessed just once, and what the hottest take."""

from __future__ import annotations

import numpy as np

from tailrace.lab.gadget.analysis.numbering import numbered


def single_access_share(keys: np.ndarray) -> float:
    """The share of keys with one access only; 0 for no keys."""
    ids, count = numbered(keys)
    return float((np.bincount(ids) == 1).sum()) / count if count else 0.0


def hottest_share(keys: np.ndarray, share: float = 0.01) -> float:
    """Which share of all accesses the most popular keys take, so large a share of all keys (one at least)."""
    ids, count = numbered(keys)
    if not count:
        return 0.0
    most = np.sort(np.bincount(ids))[::-1][: max(1, round(count * share))]
    return float(most.sum()) / len(ids)
