"""A clock that moves only when it is moved, or when somebody sleeps by it. Its wall clock can be set apart."""

from __future__ import annotations


class StillClock:
    def __init__(self) -> None:
        self.at = 100.0
        self.jumped = 0.0  # how far the wall clock was set forward

    def now(self) -> float:
        return self.at + self.jumped

    def monotonic(self) -> float:
        return self.at

    def thread_cpu(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.at += seconds
