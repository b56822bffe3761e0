"""The clock that gives a query's epochs their time: the wall clock, whose jumps are not believed at once.

A wall clock may be set while a query runs, by a person, by NTP, or by the host of a virtual machine. State that a
processing-time time-to-live has expired is gone for good, and a timer that came up has come up: time that has not
passed must do neither.

- The time of an epoch never goes back.
- While a query runs, it is the time of the epoch before and what has passed since by the monotonic clock. The wall
  clock corrects that by up to ``JUMP_MAX`` at once. Where it is further away, ahead or behind, the query's time
  approaches it by a tenth of the time that passes: so it follows a clock that was set right, and a clock that was set
  wrong by a day, and back after an hour, has moved it by six minutes.
- Between two runs only the wall clock has seen time pass: a start believes it. But where it shows a time more than
  ``maxClockJump`` after the newest epoch, the start is refused (``refuse_clock_jump``): either the query was down for
  very long, and its user says so, or the clock is wrong.

Threads: an ``EpochClock`` belongs to one.
"""

from __future__ import annotations

import logging

from tailrace.api.duration import format_duration
from tailrace.env import clock
from tailrace.errors import CheckpointError

JUMP_MAX = 60_000_000
"""Microseconds by which the wall clock may correct an epoch's time at once."""
SLEW = 10
"""A wall clock that is further away is approached by one part in so many of the time that passes."""

_log = logging.getLogger("tailrace")


class EpochClock:
    def __init__(self) -> None:
        self._own: int | None = None  # of the last epoch of this run, in microseconds
        self._read_at = 0.0  # by the monotonic clock
        self._astray = False

    def next(self, last: int) -> int:
        """The time of an epoch that begins now, in microseconds. ``last``: of the epoch before, as it was recorded."""
        wall, at = int(clock.now() * 1e6), clock.monotonic()
        if self._own is None:
            now = wall
        else:
            passed = int((at - self._read_at) * 1e6)
            off = wall - self._own - passed
            self._note(off)
            step = off if abs(off) <= JUMP_MAX else passed // SLEW * (1 if off > 0 else -1)
            now = self._own + passed + step
            now = max(now, self._own)
        self._own, self._read_at = max(now, last), at
        return self._own

    def _note(self, off: int) -> None:
        astray = abs(off) > JUMP_MAX
        if astray and not self._astray:
            _log.warning(
                "this machine's clock was set %s by %s: the query's own time, by which state expires, follows it by a "
                "tenth of the time that passes",
                "forward" if off > 0 else "back",
                format_duration(abs(off) // 1_000_000 * 1_000_000),
            )
        self._astray = astray


def refuse_clock_jump(last: int, jump_max: int) -> None:
    """At a start of a query whose state expires by the clock. ``last``: the time of the newest epoch, 0 without one."""
    ahead = int(clock.now() * 1e6) - last
    if last and ahead > jump_max:
        whole = format_duration(ahead // 1_000_000 * 1_000_000)
        raise CheckpointError(
            f"By this machine's clock ({clock.timestamp_text(clock.now())}) the newest epoch ran {whole} ago, at "
            f"{clock.timestamp_text(last / 1e6)}, and state expires by that clock. If the clock is wrong, set it "
            f"right: otherwise state would be lost that is not old. If the query was down for so long, start it with "
            f"a longer time in the option maxClockJump (it is {format_duration(jump_max)})."
        )
