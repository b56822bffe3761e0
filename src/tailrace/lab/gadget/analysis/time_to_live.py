"""Time to live: how many operations lie between the first and the last access to a key."""

from __future__ import annotations

import numpy as np

from tailrace.lab.gadget.analysis.numbering import numbered

SAMPLE = 1000
PERCENTILES = (50.0, 90.0, 99.9, 100.0)


def lifetimes(keys: np.ndarray) -> np.ndarray:
    """Of each key, by first appearance, the steps between its first and last access.

    >>> lifetimes(np.array([4, 5, 4, 6, 4]))
    array([4, 0, 0])
    """
    ids, count = numbered(keys)
    steps = np.arange(len(ids))
    first, last = np.full(count, len(ids), np.int64), np.zeros(count, np.int64)
    np.minimum.at(first, ids, steps)
    np.maximum.at(last, ids, steps)
    return last - first


def percentiles(lives: np.ndarray, seed: int, sample: int | None = SAMPLE) -> dict[str, int]:
    """Of so many keys chosen at random (None: of all): the smallest life that so many percent of them do not exceed."""
    if not len(lives):
        return {}
    if sample is not None and sample < len(lives):
        lives = np.random.default_rng(seed).choice(lives, sample, replace=False)
    found = np.percentile(lives, PERCENTILES, method="inverted_cdf")
    names = ["max" if each == 100 else f"p{each:g}" for each in PERCENTILES]
    return dict(zip(names, found.astype(int).tolist()))
