"""When background work may run: not while an epoch is worked on, but soon enough in any case."""

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


def test_without_foreground_work_nothing_waits() -> None:
    throttle = BackgroundThrottle(StillClock())
    throttle.wait()
    throttle.mark_busy()
    throttle.over()
    throttle.wait()


def test_background_work_waits_until_the_foreground_is_done() -> None:
    throttle = BackgroundThrottle(StillClock())  # at whose time nobody waits too long
    throttle.mark_busy()
    thread, through = _waiter(throttle)
    assert not through.wait(0.05)
    throttle.over()
    thread.join(10)
    assert through.is_set()


def test_foreground_work_without_an_end_stops_counting_after_a_while() -> None:
    clock = StillClock()
    throttle = BackgroundThrottle(clock)
    throttle.mark_busy()
    clock.at += 60
    throttle.wait()


def test_background_work_waits_a_bounded_time_however_busy_the_foreground() -> None:
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
