"""Query 2's Stochastic Outlier Selection of a window of points, compiled: the same for every system that runs Python.

Janssens et al., as the benchmark uses it: distances not squared, and a search for each point's precision that takes
just 50 steps of halving and doubling from 1 on. A window of 500 points is 51 times 250,000 exponentials; rows of the
affinity matrix are worked on one by one, so that memory is a few rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np

from tailrace.lab.espbench.queries.constants import MF01, MF02, PERPLEXITY, STEPS, THRESHOLD

_njit: Any = numba.njit


@_njit("float64[::1](float64[::1], float64[::1], float64)", cache=True, nogil=True, fastmath={"reassoc", "contract"})
def outlier_probabilities(x: np.ndarray, y: np.ndarray, perplexity: float) -> np.ndarray:
    """How likely each of the points is an outlier: the product, over all others, of not being chosen as a neighbour."""
    n = len(x)
    wanted = np.log(perplexity)
    kept = np.ones(n)
    distances = np.empty(n - 1)  # to the others
    affinities = np.empty(n - 1)
    for i in range(n):
        for k in range(n - 1):
            j = k if k < i else k + 1
            dx, dy = x[i] - x[j], y[i] - y[j]
            distances[k] = np.sqrt(dx * dx + dy * dy)
        precision, low, high = 1.0, -1.0, -1.0  # below 0: no bound yet
        total = 0.0
        for step in range(STEPS + 1):
            total, weighted = 0.0, 0.0
            for k in range(n - 1):
                affinity = np.exp(-precision * distances[k])
                affinities[k] = affinity
                total += affinity
                weighted += affinity * distances[k]
            if step == STEPS:
                break
            if total > 0.0 and np.log(total) + precision * weighted / total > wanted:
                low = precision
                precision = precision * 2.0 if high < 0.0 else (precision + high) / 2.0
            else:
                high = precision
                precision = precision / 2.0 if low < 0.0 else (precision + low) / 2.0
        if total > 0.0:
            for k in range(n - 1):
                kept[k if k < i else k + 1] *= 1.0 - affinities[k] / total
    return kept


def half_up(probability: float) -> str:
    """With two decimals, rounded as Java's HALF_UP does, not as Python does."""
    return f"{np.floor(probability * 100 + 0.5) / 100:.2f}"


def outlier_texts(ids: Sequence[Any], rows: Sequence[str]) -> list[str]:
    """The results of one window, in the order of message ids."""
    fields = [row.split("\t", MF02 + 1) for row in rows]
    x, y = (np.array([each[number] for each in fields], np.float64) for number in (MF01, MF02))
    found = outlier_probabilities(x, y, PERPLEXITY)
    chosen = sorted((int(ids[place]), place) for place in range(len(rows)) if found[place] >= THRESHOLD)
    return [f"{number};{rows[place]}\t{half_up(found[place])}" for number, place in chosen]
