"""A clock that moves only when it is moved, or when somebody sleeps by it."""

from __future__ import annotations


class StillClock:
    def __init__(self) -> None:
        self.at = 100.0

    def now(self) -> float:
        return self.at

    monotonic = now

    def thread_cpu(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.at += seconds
