"""Input streams: made from distributions, or woven from two. Others come from `event_files` and `stand_ins`.

The clock counts units of a second. In each unit, late events that were put off to it come first, in the order in which
they were put off, then those of the unit itself. Everything comes from the seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from tailrace.errors import TailraceError
from tailrace.lab.gadget.events.distributions import Draws
from tailrace.lab.gadget.events.watermarks import Watermarks, by_events, by_time
from tailrace.lab.gadget.traces.trace import Events

UNIT_US = 1_000_000
LATEST_US = 10**18
"""Of times, either way: far from where adding a window's length would overflow."""


class Kind(IntEnum):
    """What an event means. Left events of a continuous join say that what is joined with begins, or ends."""

    DATA = 0
    ADD = 1
    END = 2


@dataclass(frozen=True)
class Stream:
    """Events in order of arrival. ``arrivals``: when each arrives, where that is not its own time. Microseconds."""

    events: Events
    arrivals: np.ndarray | None = None
    start_us: int | None = None
    """Where the clock starts, if not with the first event."""

    def watermarks(self, every_events: int | None, every_us: int | None) -> Watermarks:
        if every_events is not None:
            return by_events(self.events, every_events)
        assert every_us is not None
        return by_time(self.events, every_us, self.arrivals, self.start_us)


@dataclass(frozen=True)
class Synthetic:
    """A stream from distributions."""

    events: int
    keys: Draws
    gaps: Draws
    """Seconds from an event to the next."""
    late_percent: float = 0
    lateness: int = 0
    """A late event comes 1 to so many units after its own."""
    add_percent: float = 50
    """Of events, those that are `Kind.ADD`, where they are a left input; the others are `Kind.END`."""

    def stream(self, seed: int) -> Stream:
        of_keys, of_gaps, of_lateness, of_kinds = (
            np.random.default_rng(one) for one in np.random.SeedSequence(seed).spawn(4)
        )
        exact = np.cumsum(self.gaps.draw(of_gaps, self.events) * UNIT_US)
        if exact[-1] > LATEST_US:
            raise TailraceError(
                f"events go on for {exact[-1] / UNIT_US:g} s, too long: take shorter gaps or fewer events"
            )
        times = exact.astype(np.int64)
        keys = self.keys.draw(of_keys, self.events)
        kinds = np.where(of_kinds.random(self.events) * 100 < self.add_percent, Kind.ADD, Kind.END).astype(np.uint8)
        late = (of_lateness.random(self.events) * 100 < self.late_percent) & (self.lateness > 0)
        unit = times // UNIT_US
        delivered = unit + np.where(late, of_lateness.integers(1, max(self.lateness, 1), self.events, endpoint=True), 0)
        order = np.lexsort((np.arange(self.events), ~late, delivered))
        arrivals = np.where(late, delivered * UNIT_US, times)
        return Stream(Events(keys[order], times[order], kinds=kinds[order]), arrivals[order], 0)


def woven(left: Stream, right: Stream, schedule: str) -> Stream:
    """Two inputs as one stream. ``time``: by time of arrival. ``unit``: all left events of a unit, then all right ones.

    An input's own order stays as it is. At equal times the left one comes first.
    """
    streams = (left, right)
    clocks = [np.maximum.accumulate(one.events.times if one.arrivals is None else one.arrivals) for one in streams]
    sides = np.repeat(np.array([0, 1], np.uint8), [len(clock) for clock in clocks])
    clock = np.concatenate(clocks)
    start = min((int(one[0]) for one in clocks if len(one)), default=0)
    if all(one.start_us is not None for one in streams):
        start = min(int(one.start_us or 0) for one in streams)
    turns = clock if schedule == "time" else (clock - start) // UNIT_US
    order = np.lexsort((sides, turns))
    kinds = [np.zeros(len(one.events), np.uint8) if one.events.kinds is None else one.events.kinds for one in streams]
    events = Events(
        np.concatenate([one.events.keys for one in streams])[order],
        np.concatenate([one.events.times for one in streams])[order],
        sides[order],
        np.concatenate(kinds)[order],
    )
    return Stream(events, clock[order], start)
