"""Trying again: by a clock of its own, so that two minutes pass at once."""

from __future__ import annotations

import logging

import pytest

from tailrace.env import clock
from tailrace.env.retry import LOG_AFTER_S, PAUSE_S_MAX, keep_trying


class Hurried(clock.SystemClock):
    def __init__(self) -> None:
        self.at = 0.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds
        self.pauses.append(seconds)


def refuse(error: Exception, tried: str) -> Exception:
    return RuntimeError(f"{tried}|{error}")


def tried(times: int) -> tuple[int, Hurried]:
    left, hurried = [times], Hurried()

    def work() -> int:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError("not yet")
        return 7

    with clock.use(hurried):
        return keep_trying(work, lambda error: True, refuse, 120), hurried


def test_the_first_answer_counts_and_pauses_grow() -> None:
    assert tried(0)[1].pauses == []
    answer, hurried = tried(9)
    assert answer == 7 and len(hurried.pauses) == 9
    assert hurried.pauses[0] <= 0.05 and 0.5 * PAUSE_S_MAX <= hurried.pauses[-1] <= PAUSE_S_MAX


def test_it_ends_at_the_stated_time_and_says_how_often(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING, "tailrace"),
        pytest.raises(RuntimeError, match=r"\d+ requests in 120 s .*not yet"),
    ):
        tried(10_000)
    assert len(caplog.records) == 1 and "not yet" in caplog.text, f"told once, after {LOG_AFTER_S} s"


def test_what_cannot_pass_is_reported_at_once() -> None:
    def work() -> None:
        raise OSError("no rights")

    with pytest.raises(RuntimeError, match=r"^\|no rights"):
        keep_trying(work, lambda error: False, refuse, 120)
