"""A window of any kind. None stands for no window: then a key has one group, for ever."""

from __future__ import annotations

from typing import TypeAlias

from tailrace.operators.windows.count_window import CountWindowSpec
from tailrace.operators.windows.custom_window import BY_END, CustomWindowSpec
from tailrace.operators.windows.dynamic_session import DynamicSessionSpec
from tailrace.operators.windows.session_window import SessionWindowSpec
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.operators.windows.window_kind import WindowKind

AnyWindowSpec: TypeAlias = TimeWindowSpec | SessionWindowSpec | DynamicSessionSpec | CountWindowSpec | CustomWindowSpec


def window_kind_of(window: AnyWindowSpec | None) -> WindowKind:
    return WindowKind.GLOBAL if window is None else window.window_kind


def window_text(window: AnyWindowSpec | None) -> str:
    return "none" if window is None else window.text()


def pane_windows_of(window: AnyWindowSpec | None) -> TimeWindowSpec | None:
    """Windows that end by the watermark for all keys alike, as their records lie in panes; None: there are none."""
    if isinstance(window, CustomWindowSpec):
        return BY_END
    return window if isinstance(window, TimeWindowSpec) else None
