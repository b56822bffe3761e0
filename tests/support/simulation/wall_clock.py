"""The wall clock, which somebody sets while queries run, and what the time of epochs must not do because of that.

| invariant | looked at |
|---|---|
| an epoch's time is never before that of the epoch before | an epoch begins |
| inside a run it goes on by what has passed, a tenth of that, and a minute at most, whatever the clock | likewise |

One clock for all machines: a driver that is started elsewhere, where the clock is another, sees the same as one that is
started where it was set.
"""

from __future__ import annotations

from support.simulation.scheduler import Scheduler
from tailrace.spark.epoch.time.epoch_clock import JUMP_MAX, SLEW

_BEGIN_S = 1.8e9
_JUMPS_S = (20.0, 3600.0, 40 * 86_400.0)


class WallClock:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._ahead_s = 0.0

    def now(self) -> float:
        return _BEGIN_S + self._scheduler.now + self._ahead_s

    def jump(self) -> None:
        draw = self._scheduler.random
        self._ahead_s += draw.choice(_JUMPS_S) * draw.choice((1, 1, -1))


class EpochTimeCheck:
    """Of one run, which began with the time of an earlier one's newest epoch."""

    def __init__(self, scheduler: Scheduler, last: int) -> None:
        self._scheduler, self._last = scheduler, last
        self._began: float | None = None  # the last epoch of this run

    def begins(self, now: int, replayed: bool) -> None:
        """An epoch begins with this time. ``replayed``: it is the recorded one, of an earlier run."""
        if now < self._last:
            raise self._scheduler.failed(f"an epoch's time goes back, from {self._last} to {now}")
        if self._began is not None:
            passed = (self._scheduler.now - self._began) * 1e6
            if now - self._last > passed + passed / SLEW + JUMP_MAX + 1:
                raise self._scheduler.failed(f"an epoch's time jumps by {now - self._last} in {passed:.0f}")
        self._last, self._began = now, None if replayed else self._scheduler.now
