"""When there is time for what nobody waits for: not in a rush, but soon enough in any case."""

from __future__ import annotations

import threading

from support.manual_clock import StillClock
from tailrace.server.epoch.background_throttle import BackgroundThrottle


def _waiter(throttle: BackgroundThrottle) -> tuple[threading.Thread, threading.Event]:
    through = threading.Event()

    def run() -> None:
        throttle.wait()
        through.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, through


def test_without_a_rush_nobody_waits() -> None:
    throttle = BackgroundThrottle(StillClock())
    throttle.wait()
    throttle.mark_busy()
    throttle.over()
    throttle.wait()


def test_a_rush_is_waited_for_until_it_is_over() -> None:
    throttle = BackgroundThrottle(StillClock())  # at whose time nobody waits too long
    throttle.mark_busy()
    thread, through = _waiter(throttle)
    assert not through.wait(0.05)
    throttle.over()
    thread.join(10)
    assert through.is_set()


def test_a_rush_without_an_end_counts_no_more_after_a_while() -> None:
    clock = StillClock()
    throttle = BackgroundThrottle(clock)
    throttle.mark_busy()
    clock.at += 60
    throttle.wait()


def test_nobody_waits_for_long_however_often_there_is_a_rush() -> None:
    clock = StillClock()
    throttle = BackgroundThrottle(clock)
    throttle.mark_busy()
    thread, through = _waiter(throttle)
    for _ in range(1000):
        clock.at += 0.01
        throttle.mark_busy()
        if through.wait(0.01):
            break
    thread.join(10)
    assert through.is_set() and clock.at > 100.2
