"""Time. Everything above ``env`` asks here, so that a simulator can answer instead.

``use`` puts another clock in place of the machine's; for tests that run nothing else meanwhile.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

from tailrace.env.replaceable import Replaceable


class Clock(Protocol):
    def now(self) -> float:
        """Wall clock, in seconds since 1970-01-01 UTC. May jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow: for durations and deadlines."""
        ...

    def thread_cpu(self) -> float:
        """Seconds of processor time that this thread has used."""
        ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's own clock. Stateless, safe from any thread."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def thread_cpu(self) -> float:
        return time.thread_time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


SYSTEM = SystemClock()
_clock = Replaceable[Clock](SYSTEM)
use = _clock.use


def now() -> float:
    return _clock.current.now()


def monotonic() -> float:
    return _clock.current.monotonic()


def thread_cpu() -> float:
    return _clock.current.thread_cpu()


def sleep(seconds: float) -> None:
    _clock.current.sleep(seconds)


def timestamp_text(seconds: float) -> str:
    """A point in time as a person reads it, in UTC.

    >>> timestamp_text(0)
    '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
