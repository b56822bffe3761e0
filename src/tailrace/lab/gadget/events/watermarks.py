"""Watermarks: where in a stream of events they come, and what they say. Pure.

A watermark ``w`` says that no event of time ``w`` or earlier is expected any more. A window that ends at ``w`` closes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailrace.errors import TailraceError
from tailrace.lab.gadget.traces.trace import Events

MOST = 50_000_000
_END = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Watermarks:
    """Before event ``at[i]`` is handled, the watermark becomes ``values[i]``, if it is not later already."""

    at: np.ndarray
    """int64, ascending"""
    values: np.ndarray
    """int64, microseconds"""

    def followed_by(self, at: int, value: int) -> Watermarks:
        return Watermarks(np.append(self.at, np.int64(at)), np.append(self.values, np.int64(value)))


def by_events(events: Events, every: int) -> Watermarks:
    """After every so many events of an input, the latest time that it has had; of two inputs, the earlier of theirs.

    An input that has come to its end holds up nothing.
    """
    if events.sides is None:
        return _of_input(np.arange(len(events)), events.times, every)
    inputs = []
    for side in (0, 1):
        places = np.flatnonzero(events.sides == side)
        mine = _of_input(places, events.times[places], every)
        inputs.append(mine.followed_by(int(places[-1]) + 1 if len(places) else 0, _END))
    at = np.unique(np.concatenate([one.at for one in inputs]))
    latest = []
    for one in inputs:
        place = np.searchsorted(one.at, at, side="right") - 1
        latest.append(np.where(place < 0, -_END, one.values[place]))
    values = np.minimum(*latest)
    finite = (values > -_END) & (values < _END)
    return Watermarks(at[finite], values[finite])


def _of_input(places: np.ndarray, times: np.ndarray, every: int) -> Watermarks:
    last = np.arange(every - 1, len(times), every)
    return Watermarks(places[last] + 1, np.maximum.accumulate(times)[last] if len(times) else times[last])


def by_time(
    events: Events, every_us: int, arrivals: np.ndarray | None = None, start_us: int | None = None
) -> Watermarks:
    """At every multiple of a period after the start, as soon as an event arrives that is not before it.

    ``arrivals``: when events arrive; otherwise an event arrives at its own time, or at once if that is over. Without
    ``start_us`` the first arrival is the start.
    """
    if not len(events):
        return Watermarks(np.empty(0, np.int64), np.empty(0, np.int64))
    clock = np.maximum.accumulate(events.times if arrivals is None else arrivals)
    start = int(clock[0]) if start_us is None else start_us
    if (int(clock[-1]) - start) // every_us > MOST:
        raise TailraceError(f"a watermark every {every_us / 1e6:g} s makes more than {MOST:,} of them: take fewer")
    ticks = np.arange(start + every_us, int(clock[-1]) + 1, every_us, dtype=np.int64)
    return Watermarks(np.searchsorted(clock, ticks, side="left").astype(np.int64), ticks)
