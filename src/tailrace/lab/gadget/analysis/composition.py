"""What a trace is made of: shares of operations, amplification, popularity of keys. Order plays no part.

Composition: the share of each operation. Amplification: how many accesses an event makes, and how many state keys an
event key. Popularity: how many keys are accessed just once, and what the hottest take.
"""

from __future__ import annotations

import numpy as np

from tailrace.lab.gadget.analysis.numbering import numbered
from tailrace.lab.gadget.traces.trace import Operation, Trace


def composition(trace: Trace) -> dict[str, float]:
    """Operation, in lower case, to its share; all zero for a trace without accesses."""
    counts = np.bincount(trace.operations, minlength=len(Operation))
    return {each.name.lower(): float(counts[each]) / max(1, len(trace)) for each in Operation}


def event_amplification(trace: Trace) -> float | None:
    """Accesses for each input event; None where the trace does not know its events, or has none."""
    if trace.events is None or not len(trace.events.keys):
        return None
    return len(trace) / len(trace.events.keys)


def key_space_amplification(trace: Trace) -> float | None:
    """Different state keys for each different event key."""
    if trace.events is None or not len(trace.events.keys):
        return None
    return numbered(trace.keys)[1] / numbered(trace.events.keys)[1]


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
