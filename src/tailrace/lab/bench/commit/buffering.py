"""Deadline-driven buffering, as zStream does it in MiSA's comparison: how many seconds of traffic the next batch takes.

The engine goes on buffering as long as it expects to process what it has within the deadline, and no longer than the
deadline itself. What it expects comes from a line through the newest batches, time over rows. Records that are left
over go to the next batch. Time here is the traffic's: a second of records arrives in each, and a batch's measured time
is added, so traffic does not wait for the engine, whatever else the bench does meanwhile. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

_BATCHES_LOOKED_AT = 20
_TELLING_SPREAD = 0.1  # of the mean rows: from about here on the line is believed
_STEP_S = 1


class BatchTimes:
    """Expects a batch's time from its rows: the best line, never falling, through the newest batches.

    Batches of about one size say little of the slope: where that is all there is, time is expected to grow with rows.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[int, float]] = deque(maxlen=_BATCHES_LOOKED_AT)

    def add(self, rows: int, time_s: float) -> None:
        self._seen.append((rows, time_s))

    def expected_s(self, rows: int) -> float:
        """Nothing is known before the first batch: no time at all."""
        if not self._seen:
            return 0.0
        x, y = np.array(self._seen, float).T
        spread = x - x.mean()
        weight = (_TELLING_SPREAD * max(1.0, float(x.mean()))) ** 2
        in_proportion = float(y.mean()) / max(1.0, float(x.mean()))
        slope = max(0.0, (float(spread @ y) + weight * in_proportion) / (float(spread @ spread) + weight))
        return max(0.0, float(y.mean()) + slope * (rows - float(x.mean())))


class Buffering:
    """``rows``: how many records the traffic has from one second (inclusive) to another."""

    def __init__(self, deadline_s: float, rows: Callable[[int, int], int]) -> None:
        self._deadline_s = deadline_s
        self._rows = rows
        self._times = BatchTimes()
        self._now = 0.0
        self._taken = 0
        """Seconds of traffic that earlier batches have had."""
        self._buffers_since = 0.0

    def next_batch(self) -> tuple[int, int]:
        """From which second to which the next batch takes: one at least, else nothing would ever go on."""
        first, until = self._taken, self._taken + _STEP_S
        while self._worth(first, until + _STEP_S):
            until += _STEP_S
        # What has not arrived yet is waited for.
        self._now = max(self._now, float(until))
        self._taken = until
        return first, until

    def done(self, rows: int, time_s: float) -> None:
        self._times.add(rows, time_s)
        self._buffers_since = self._now  # the next batch has buffered since this one began
        self._now += time_s

    def forget(self) -> None:
        """Begin anew from here: what was measured while an engine started up says nothing of it."""
        self._times = BatchTimes()
        self._now = self._buffers_since = float(self._taken)

    @property
    def backlog_s(self) -> float:
        """How far behind the traffic it is."""
        return max(0.0, self._now - self._taken)

    def _worth(self, first: int, until: int) -> bool:
        arrived = until <= self._now
        in_time = until - self._buffers_since <= self._deadline_s
        return (arrived or in_time) and self._times.expected_s(self._rows(first, until)) <= self._deadline_s
