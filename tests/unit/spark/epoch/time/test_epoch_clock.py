"""The time of epochs: it follows the wall clock, does not jump with it, and never goes back."""

from __future__ import annotations

import random

import pytest

from support.manual_clock import StillClock
from tailrace.env import clock
from tailrace.errors import CheckpointError
from tailrace.spark.epoch.time.epoch_clock import JUMP_MAX, EpochClock, refuse_clock_jump

SECOND, DAY = 1_000_000, 86_400


def test_without_jumps_it_is_the_wall_clock() -> None:
    time = StillClock()
    with clock.use(time):
        epochs, last = EpochClock(), 0
        for step in (0.0, 0.5, 3.0, 7200.0):
            time.at += step
            time.jumped += 0.01  # as a clock that is kept right
            last = epochs.next(last)
            assert last == int(time.now() * 1e6)


@pytest.mark.parametrize("jump_s", [DAY, 400 * DAY, -DAY, -400 * DAY])
def test_a_jump_is_approached_slowly_and_a_jump_back_is_undone(jump_s: float, caplog: pytest.LogCaptureFixture) -> None:
    time = StillClock()
    with clock.use(time):
        epochs = EpochClock()
        first = last = epochs.next(0)
        time.jumped += jump_s
        for _ in range(3600):
            time.at += 1
            now = epochs.next(last)
            assert abs(now - last - SECOND) <= SECOND // 10
            last = now
        assert abs(abs(last - first - 3600 * SECOND) - 360 * SECOND) < SECOND, "a tenth of an hour"
        assert len(caplog.records) == 1 and ("forward" if jump_s > 0 else "back") in caplog.text
        time.jumped -= jump_s
        for _ in range(4000):
            time.at += 1
            last = epochs.next(last)
        assert last == int(time.now() * 1e6)


def test_a_small_jump_is_believed() -> None:
    time = StillClock()
    with clock.use(time):
        epochs = EpochClock()
        last = epochs.next(0)
        time.at += 1
        time.jumped += 50
        assert epochs.next(last) == last + 51 * SECOND
        time.jumped -= 100  # it stands still until the clock has come as far
        assert epochs.next(last + 51 * SECOND) == last + 51 * SECOND


def test_whatever_the_clock_does_time_goes_on_and_not_faster_than_it_may() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw, time = random.Random(seed), StillClock()
    with clock.use(time):
        epochs = EpochClock()
        last = epochs.next(0)
        for _ in range(500):
            passed = draw.choice((0.0, 0.01, 1.0, 500.0))
            time.at += passed
            time.jumped += draw.choice((0.0, 0.0, 1e3, -1e3, 1e7, -1e7, 0.1))
            now = epochs.next(last)
            assert last <= now <= last + 1.1 * passed * 1e6 + JUMP_MAX + 2
            last = now


def test_a_start_believes_the_clock_but_never_goes_back_behind_what_was_recorded() -> None:
    time = StillClock()
    with clock.use(time):
        recorded = int(time.now() * 1e6)
        time.at = 5.0  # another machine, down for two days
        time.jumped += 2 * DAY
        assert EpochClock().next(recorded) == int(time.now() * 1e6)
        time.jumped -= 4 * DAY
        epochs = EpochClock()
        assert epochs.next(recorded) == recorded
        time.at += 10
        assert epochs.next(recorded) == recorded + 9 * SECOND


def test_an_epoch_that_is_replayed_with_its_own_time_holds_up_no_other() -> None:
    """The query was down for a day: that is no jump for the epoch behind the one that is replayed."""
    time = StillClock()
    with clock.use(time):
        recorded = int(time.now() * 1e6)
        time.jumped += DAY
        epochs = EpochClock()
        epochs.next(recorded - SECOND)  # the replay uses ``recorded``
        time.at += 2
        assert epochs.next(recorded) == int(time.now() * 1e6)


def test_a_start_long_after_the_newest_epoch_is_refused_with_advice() -> None:
    time = StillClock()
    with clock.use(time):
        last = int(time.now() * 1e6)
        time.jumped += 8 * DAY
        refuse_clock_jump(0, 7 * DAY * SECOND)  # no epoch yet
        refuse_clock_jump(last, 9 * DAY * SECOND)
        with pytest.raises(CheckpointError, match=r"1 week 1 day ago.* wrong.* maxClockJump \(it is 1 week\)"):
            refuse_clock_jump(last, 7 * DAY * SECOND)
        time.jumped -= 20 * DAY
        refuse_clock_jump(last, 7 * DAY * SECOND)  # back: its time stands still
