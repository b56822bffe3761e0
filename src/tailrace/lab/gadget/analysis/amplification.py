"""Amplification: how many accesses an event makes, and how many state keys an event key."""

from __future__ import annotations

from tailrace.lab.gadget.analysis.numbering import numbered
from tailrace.lab.gadget.traces.trace import Trace


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
