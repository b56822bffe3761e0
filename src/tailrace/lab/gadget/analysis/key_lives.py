"""Lives of keys: how long each is in use, and how many are in use at a time.

Time to live: how many operations lie between the first and the last access to a key. Working set: how many keys are
active. A key is active from its first access on, until it is deleted; an access after that makes it so again.
"""

from __future__ import annotations

import numpy as np

from tailrace.lab.gadget.analysis.numbering import numbered
from tailrace.lab.gadget.traces.trace import Operation, Trace

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


EVERY = 100
"""Operations between two samples."""


def active_keys(trace: Trace) -> np.ndarray:
    """After each access, how many keys are active."""
    order = np.argsort(trace.keys, kind="stable")
    keys, deletes = trace.keys[order], trace.operations[order] == Operation.DELETE
    was_active = np.zeros(len(keys), np.int64)
    was_active[1:] = (keys[1:] == keys[:-1]) & ~deletes[:-1]
    change = np.empty(len(keys), np.int64)
    change[order] = ~deletes - was_active
    return change.cumsum()


def working_set(trace: Trace, every: int = EVERY) -> np.ndarray:
    """The active keys after every so many operations."""
    return active_keys(trace)[every - 1 :: every]
