"""Windows and groups from the API to an operator's spec, and in a user's words."""

from __future__ import annotations

from tailrace.api.relations import StateTtl, Watermark
from tailrace.api.windows import AnyWindow, CountWindow, Window
from tailrace.operators.timers.ttl import Ttl
from tailrace.operators.windows.any_window import AnyWindowSpec
from tailrace.operators.windows.count_window import CountWindowSpec
from tailrace.operators.windows.time_window import TimeWindowSpec


def closes_by_watermark(window: AnyWindow | None, watermark: Watermark | None, ttl: StateTtl | None) -> bool:
    """Of groups: whether the watermark makes rows late and drops state.

    Without a window nothing ever closes and no row is late, whatever the watermark: as in Spark. Windows by count close
    when they are full; rows are late only where what comes out has to be in time for others.
    """
    forgets = ttl is not None and not ttl.processing
    if isinstance(window, CountWindow):
        return forgets or window.event_time is not None
    if ttl is not None:
        return forgets
    return watermark is not None and window is not None


def undropped_text(window: AnyWindowSpec | None, ttl: Ttl | None) -> str:
    """What becomes of the state of groups that no watermark drops."""
    if ttl is not None:
        return "state goes by its time-to-live"
    return "a window goes when it is full" if isinstance(window, CountWindowSpec) else "state is never dropped"


def timeless_text(window: AnyWindowSpec | None) -> str:
    """Why no watermark counts for groups."""
    return "windows by count" if isinstance(window, CountWindowSpec) else "no window"


def plan_time_window(window: Window) -> TimeWindowSpec:
    return TimeWindowSpec(window.size, window.slide, window.offset, window.lasts)
