"""What a kill costs: how long no result came, and until results came as fast as before.

A result is put down to the time of what caused it. A system has caught up when, from then on for a while, what is
caused gets its result nearly as fast as before the kill.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_AS_FAST = 2.0
_MARGIN_MS = 200
_CAUGHT_UP = 0.9
"""Of the results caused in a second, so many must be as fast."""


@dataclass(frozen=True)
class Kill:
    """``silent_s``: from the kill until the next result was there, None where none came. ``behind_s``: until records
    that came then had their results as fast as before, None where that was not before the run's end."""

    at_s: float
    silent_s: float | None
    behind_s: float | None


def kills(at_s: Sequence[float], caused_ms: Sequence[int], latencies_ms: Sequence[int]) -> list[Kill]:
    """``at_s``: moments of kills, oldest first, in seconds since 1970. The others: of each result."""
    caused, latencies = np.array(caused_ms, np.int64), np.array(latencies_ms, np.int64)
    done = caused + latencies
    before = latencies[done < at_s[0] * 1e3] if at_s else latencies
    usual_ms = float(np.median(before)) if len(before) else float("inf")
    fast = latencies <= _AS_FAST * usual_ms + _MARGIN_MS
    found = []
    for number, moment in enumerate(at_s):
        from_ms, to_ms = moment * 1e3, at_s[number + 1] * 1e3 if number + 1 < len(at_s) else float("inf")
        later = done[done > from_ms]
        silent_s = round(float(later.min() - from_ms) / 1e3, 3) if len(later) else None
        found.append(Kill(moment, silent_s, _behind_s(caused, fast, from_ms, to_ms)))
    return found


def _behind_s(caused: np.ndarray, fast: np.ndarray, from_ms: float, to_ms: float) -> float | None:
    within = (caused >= from_ms) & (caused < to_ms)
    seconds = ((caused[within] - from_ms) // 1000).astype(np.int64)
    if not len(seconds):
        return None
    share = np.bincount(seconds, fast[within]) / np.maximum(np.bincount(seconds), 1)
    slow = np.flatnonzero((share < _CAUGHT_UP) & (np.bincount(seconds) > 0))
    if not len(slow):
        return 0.0
    return float(slow[-1] + 1) if slow[-1] + 1 < len(share) else None
