"""When messages are due: an open loop. A sender that is late sends all that are due at once, and never skips one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Schedule:
    """Message i is due ``i * interval_ns`` after the start. Of ``instances``, this one sends every so manieth."""

    start_ns: int
    interval_ns: int
    messages: int
    instance: int = 0
    instances: int = 1

    @property
    def mine(self) -> int:
        """How many messages this instance sends."""
        return len(range(self.instance, self.messages, self.instances))

    def number(self, sent: int) -> int:
        """The message's number, for one that has sent so many before."""
        return self.instance + sent * self.instances

    def due(self, now_ns: int) -> int:
        """How many of mine are due by now."""
        passed = (now_ns - self.start_ns) // self.interval_ns + 1 if now_ns >= self.start_ns else 0
        return len(range(self.instance, min(passed, self.messages), self.instances))

    def due_ns(self, sent: int) -> int:
        return self.start_ns + self.number(sent) * self.interval_ns


class Lateness:
    """How far behind its schedule each message was handed to the client, in the order of sending."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._ns = np.zeros(schedule.mine, np.int64)
        self._sent = 0

    def add(self, count: int, now_ns: int) -> None:
        """``count`` messages go out now."""
        numbers = self._schedule.instance + np.arange(self._sent, self._sent + count) * self._schedule.instances
        self._ns[self._sent : self._sent + count] = (
            now_ns - self._schedule.start_ns - numbers * self._schedule.interval_ns
        )
        self._sent += count

    def ms(self, *percentiles: float) -> list[float]:
        if not self._sent:
            return [0.0] * len(percentiles)
        return [float(value) / 1e6 for value in np.percentile(self._ns[: self._sent], percentiles)]
