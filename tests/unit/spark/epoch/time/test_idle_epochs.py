"""What silence does to a query's watermark, and when an epoch without rows is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.api.options import Options, WatermarkPolicy, WatermarkRule
from tailrace.ids import MIN_MICROS, Micros
from tailrace.spark.epoch.time.idle_epochs import CLOCK_PAUSE_S, pause_s
from tailrace.spark.epoch.time.watermark import IdleRule, Watermark

SECOND = 1_000_000
TIMEOUT = 30 * SECOND
TAILRACE = WatermarkRule.TAILRACE
NONE = MIN_MICROS


def start(inputs: int) -> Watermark:
    return Watermark.from_json({}, TAILRACE, inputs)


def after(mark: Watermark, passed: int, *seen: int, policy: WatermarkPolicy = WatermarkPolicy.MIN) -> Watermark:
    """An epoch ``passed`` seconds after the one before, with these largest times in seconds by input."""
    times = [NONE if time == NONE else time * SECOND for time in seen]
    made = mark.after(times, (5 * SECOND,) * len(seen), TAILRACE, policy, IdleRule(TIMEOUT, passed * SECOND))
    assert Watermark.from_json(made.to_json(), TAILRACE, len(seen)) == made
    return made


def test_a_silent_input_holds_the_others_back_until_it_is_idle() -> None:
    mark = after(start(2), 0, 100, 100)
    assert mark.closed == 95 * SECOND
    mark = after(mark, 20, 140, NONE)
    assert mark.closed == 95 * SECOND
    mark = after(mark, 10, 150, NONE)
    assert (mark.closed, mark.silent) == (145 * SECOND, (0, TIMEOUT))
    mark = after(mark, 5, 150, 146)  # it speaks again: what closed stays closed
    assert (mark.closed, mark.silent) == (145 * SECOND, (0, 0))


def test_an_input_that_never_spoke_is_not_waited_for_either() -> None:
    mark = after(start(2), 0, 100, NONE)
    assert mark.closed == NONE
    assert after(mark, 30, 130, NONE).closed == 125 * SECOND


def test_where_all_are_silent_time_goes_on_with_the_clock() -> None:
    mark = after(start(1), 0, 100)
    mark = after(mark, 29, NONE)
    assert mark.closed == 95 * SECOND
    mark = after(mark, 1, NONE)
    assert mark.closed == (95 + 30) * SECOND
    assert after(mark, 3600, NONE).closed == (95 + 30 + 3600) * SECOND


def test_a_restart_counts_on_from_the_silence_before_it() -> None:
    mark = after(after(start(1), 0, 100), 31, NONE)
    again = after(mark, 0, NONE)  # the first epoch of a run: nobody knows how long ago the last one was
    assert again.closed == mark.closed
    assert after(again, 10, NONE).closed == (95 + 41) * SECOND


def test_no_event_time_is_known_before_the_first_row() -> None:
    assert after(start(2), 100, NONE, NONE).closed == NONE


def test_the_largest_of_several_counts_where_that_is_asked_for() -> None:
    mark = after(start(2), 0, 100, 60, policy=WatermarkPolicy.MAX)
    assert mark.closed == 95 * SECOND
    assert after(mark, 30, NONE, 70, policy=WatermarkPolicy.MAX).closed == 95 * SECOND


@given(st.lists(st.tuples(st.integers(0, 60), st.lists(st.integers(0, 500) | st.just(NONE), min_size=3, max_size=3))))
def test_no_watermark_goes_back_and_silence_is_the_time_since_the_last_row(epochs: list[tuple[int, list[int]]]) -> None:
    mark, silent = start(3), [0, 0, 0]
    for passed, seen in epochs:
        before, mark = mark.closed, after(mark, passed, *seen)
        silent = [0 if time != NONE else old + passed * SECOND for time, old in zip(seen, silent, strict=True)]
        assert mark.closed >= before and list(mark.silent) == silent


@dataclass(frozen=True)
class _Plan:
    options: Options
    stages: tuple[Any, ...]


def _plan(timeout: int | None, *, watermarked: bool = True, clock: bool = False) -> Any:
    operator = SimpleNamespace(name="aggregate", watermarked=watermarked, ends_by_clock=clock)
    idle = None if timeout is None else Micros(timeout)
    return _Plan(Options(idle_timeout=idle), (SimpleNamespace(operator=operator),))


@pytest.mark.parametrize(
    ("plan", "silent", "rows", "pause"),
    [
        (_plan(TIMEOUT), (0,), 7, 30.0),
        (_plan(TIMEOUT), (0, 10 * SECOND), 7, 20.0),
        (_plan(TIMEOUT), (TIMEOUT, TIMEOUT), 7, 7.5),
        (_plan(TIMEOUT), (TIMEOUT, TIMEOUT), 0, None),  # nothing is left that could end
        (_plan(TIMEOUT, watermarked=False), (0,), 7, None),
        (_plan(2 * SECOND), (3 * SECOND,), 7, CLOCK_PAUSE_S),
        (_plan(None, clock=True), (0,), 7, CLOCK_PAUSE_S),
        (_plan(None, clock=True), (0,), 0, None),
    ],
)
def test_when_an_epoch_is_asked_for(plan: Any, silent: tuple[int, ...], rows: int, pause: float | None) -> None:
    mark = Watermark((0,) * len(silent), 0, silent)
    assert pause_s(plan, mark, {"aggregate": rows}) == pause
