"""Composition: the share of each operation in a trace."""

from __future__ import annotations

import numpy as np

from tailrace.lab.gadget.traces.trace import Operation, Trace


def composition(trace: Trace) -> dict[str, float]:
    """Operation, in lower case, to its share; all zero for a trace without accesses."""
    counts = np.bincount(trace.operations, minlength=len(Operation))
    return {each.name.lower(): float(counts[each]) / max(1, len(trace)) for each in Operation}
