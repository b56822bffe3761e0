"""How far the accessed state keys are from the input's keys: Kolmogorov-Smirnov test and Wasserstein-1 distance.

Both samples are numbers by first appearance, not rescaled: an operator with one state key for each event key has
distance 0, one that makes many of one is far away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tailrace.lab.gadget.analysis.numbering import numbered
from tailrace.lab.gadget.traces.trace import Trace

_TERMS = 101
"""Of the series for the p-value: its terms fall faster than those of a geometric one."""


@dataclass(frozen=True)
class KolmogorovSmirnov:
    distance: float
    p_value: float
    """Two-sided, asymptotic."""
    size_first: int
    size_second: int


def kolmogorov_smirnov(first: np.ndarray, second: np.ndarray) -> KolmogorovSmirnov:
    """Of two samples of small non-negative integers; neither may be empty."""
    ours, theirs = _cumulative(first, second)
    distance = float(np.abs(ours - theirs).max())
    n, m = len(first), len(second)
    return KolmogorovSmirnov(distance, _p_value(distance * math.sqrt(n * m / (n + m))), n, m)


def wasserstein(first: np.ndarray, second: np.ndarray) -> float:
    """The area between the two distribution functions."""
    ours, theirs = _cumulative(first, second)
    return float(np.abs(ours - theirs).sum())


def against_input(trace: Trace) -> tuple[KolmogorovSmirnov, float] | None:
    """The trace's keys against its events'; None where it does not know them."""
    if trace.events is None or not len(trace.events.keys) or not len(trace):
        return None
    events, keys = numbered(trace.events.keys)[0], numbered(trace.keys)[0]
    return kolmogorov_smirnov(events, keys), wasserstein(events, keys)


def _cumulative(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both distribution functions at 0, 1, 2, ... up to the largest value."""
    size = int(max(first.max(), second.max())) + 1
    ours, theirs = (np.bincount(sample, minlength=size).cumsum() / len(sample) for sample in (first, second))
    return ours, theirs


def _p_value(x: float) -> float:
    """Of Kolmogorov's distribution: that a value of ``x`` or more is chance."""
    if x < 0.2:
        return 1.0  # the series converges slowly here, and the sum is 1 to fifteen digits
    terms = np.arange(1, _TERMS)
    total = 2 * float(((-1.0) ** (terms - 1) * np.exp(-2.0 * terms**2 * x * x)).sum())
    return min(1.0, max(0.0, total))
