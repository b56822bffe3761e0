"""Checks what a user groups a stream by."""

from __future__ import annotations

from dataclasses import replace

from tailrace.api.columns import check_key, check_time, resolve
from tailrace.api.relations import Watermark
from tailrace.api.windows import (
    AnySession,
    AnyWindow,
    CountWindow,
    CustomWindow,
    DynamicSessionWindow,
    TimeWindow,
    Window,
)
from tailrace.errors import AnalysisError
from tailrace.types import Field


def same_window(name: str, schema: tuple[Field, ...], window: AnyWindow | None) -> Window | None:
    """The window that rows come with, where ``name`` is its column."""
    if window is None or resolve(name, schema, "groupBy").name != window.name:
        return None
    if isinstance(window, CountWindow):
        return None  # a number, and a group column like any other
    if isinstance(window, AnySession):
        raise AnalysisError(
            f"groupBy: {name!r} are sessions, each with bounds of its own, so that hardly any two rows share one: "
            f"group by windows over their ends, tailrace.window({name!r}, '1 hour')"
        )
    if isinstance(window, CustomWindow):
        raise AnalysisError(
            f"groupBy: {name!r} are windows of your own function, and rows come with the last moment of theirs "
            f"alone: group by tailrace.window({name!r}, '1 hour'), or by tailrace.custom_window({name!r}, ...) "
            f"with a function that finds the window of a moment"
        )
    length = window.size if window.lasts is None else window.lasts
    return replace(window, time_column=window.name, size=window.slide, lasts=length)


def group_key(col: object, schema: tuple[Field, ...]) -> Field:
    if not isinstance(col, str):
        raise AnalysisError(
            f"groupBy takes columns by name, PySpark's Columns, and windows, such as tailrace.window(...), but got "
            f"{col!r} ({type(col).__name__})"
        )
    field = resolve(col, schema, "groupBy")
    check_key(field, "groupBy")
    return field


def group_window(window: AnyWindow, schema: tuple[Field, ...], watermark: Watermark | None) -> AnyWindow:
    """A window over a stream's columns, by their own names."""
    if not isinstance(window, CountWindow):
        return _time_window(window, schema, watermark)
    if window.event_time is not None and watermark is None:
        raise AnalysisError(
            "count_window: eventTime needs the event time of the rows: call .withWatermark('ts', '10 seconds') "
            "before groupBy, or remove it"
        )
    return window


def _time_window(window: TimeWindow, schema: tuple[Field, ...], watermark: Watermark | None) -> TimeWindow:
    where = "session_window" if isinstance(window, AnySession) else "window"
    where = "custom_window" if isinstance(window, CustomWindow) else where
    column = resolve(window.time_column, schema, where)
    check_time(column, where)
    if watermark is not None and column != watermark.column:
        raise AnalysisError(
            f"{where} is over {column.name!r} but the watermark is on {watermark.column.name!r}, so its "
            f"windows would never close: use the same column for both"
        )
    if isinstance(window, DynamicSessionWindow):
        ends = resolve(window.ends, schema, where)
        if ends.type != column.type:
            raise AnalysisError(
                f"{where}: sessions end by {ends.name!r}, a {ends.type}, and event time {column.name!r} is a "
                f"{column.type}: cast one to the type of the other"
            )
        return replace(window, time_column=column.name, ends=ends.name)
    return replace(window, time_column=column.name)
