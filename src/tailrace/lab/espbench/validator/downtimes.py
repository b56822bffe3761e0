"""When a workplace is down, as the database said over time: what a look at it may have found.

A system looks up a record at a moment that nobody else knows: not before the record was there, nor after its result
was. With copies of a maximum age it may go by what the database held that long before. Where the downtime changed in
between, both answers are right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Downtime:
    """``start_ms`` to ``end_ms``, as it stood in the database from some moment between two on."""

    start_ms: int
    end_ms: int
    asked_ms: float = float("-inf")
    """The change was asked for: nobody saw it before."""
    done_ms: float = float("-inf")
    """It was committed: everybody saw it from then on."""

    def covers(self, at_ms: int) -> bool:
        """Bounds are outside."""
        return self.start_ms < at_ms < self.end_ms


@dataclass(frozen=True)
class Downtimes:
    """``of_workplace``: oldest first. ``max_age_ms``: of a system's copies."""

    of_workplace: Mapping[int, Sequence[Downtime]]
    max_age_ms: float = 0

    def suppressed(self, workplace: int, at_ms: int, until_ms: float) -> bool | None:
        """Whether a record of that time is; None where it may or may not be. ``until_ms``: it was looked up by then."""
        known = self.of_workplace.get(workplace, ())
        found = set()
        for number, downtime in enumerate(known):
            gone_ms = known[number + 1].done_ms if number + 1 < len(known) else float("inf")
            if downtime.asked_ms <= until_ms and at_ms - self.max_age_ms <= gone_ms:
                found.add(downtime.covers(at_ms))
        return None if len(found) > 1 else bool(found and found.pop())

    def stale_ms(self, workplace: int, at_ms: int, reported: bool) -> float:
        """How long before a record its downtime had changed, where the system went by an older one; else 0."""
        by_then = [downtime for downtime in self.of_workplace.get(workplace, ()) if downtime.done_ms <= at_ms]
        if not by_then or by_then[-1].covers(at_ms) != reported:
            return 0
        return at_ms - by_then[-1].done_ms
