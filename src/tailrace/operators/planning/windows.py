"""Windows from the API to an operator's spec."""

from __future__ import annotations

from tailrace.api.windows import AnyWindow, CountWindow, SessionWindow, Window
from tailrace.operators.planning.user_functions import packed
from tailrace.operators.windows.any_window import AnyWindowSpec
from tailrace.operators.windows.count_window import CountWindowSpec
from tailrace.operators.windows.custom_window import CustomWindowSpec
from tailrace.operators.windows.session_window import SessionWindowSpec
from tailrace.operators.windows.time_window import TimeWindowSpec


def plan_window(window: AnyWindow | None, *, in_time: bool) -> AnyWindowSpec | None:
    """``in_time``: of windows by count that give event times, whether rows before the watermark are late."""
    match window:
        case None:
            return None
        case Window():
            return plan_time_window(window)
        case SessionWindow():
            return SessionWindowSpec(window.gap)
        case CountWindow():
            slide = window.slide if window.slide < window.size else None
            return CountWindowSpec(window.size, slide, in_time and window.event_time is not None)
    return CustomWindowSpec(packed(window.assign), None if window.trigger is None else packed(window.trigger))


def plan_time_window(window: Window) -> TimeWindowSpec:
    return TimeWindowSpec(window.size, window.slide, window.offset, window.lasts)
