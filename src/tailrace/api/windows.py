"""Windows: over event time as ``window`` and ``session_window`` of ``pyspark.sql.functions`` make them, by the number
of rows, and by a function of the user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from tailrace.api.columns import Column, ColumnOrName, unquoted
from tailrace.api.duration import Duration, format_duration, parse_duration
from tailrace.errors import AnalysisError
from tailrace.ids import Micros

COUNT_MAX = 1 << 31


@dataclass(frozen=True)
class Window:
    """Windows ``[start, start + size)`` where ``start = offset + k * slide``, and 0 <= offset < slide.

    >>> window("ts", "10 seconds", "2 seconds").slide
    2000000
    """

    time_column: str
    size: Micros
    slide: Micros
    offset: Micros
    name: str = "window"
    lasts: Micros | None = None  # of windows that rows of an aggregated stream bring: from their start to their end
    time: Column | None = None  # in the place of ``time_column``, until the window is over a stream

    def alias(self, name: str) -> Window:
        """The same window with another name for its output column."""
        _check_alias(name)
        return replace(self, name=name)


@dataclass(frozen=True)
class SessionWindow:
    """Sessions of a key: its rows of which each comes at most ``gap`` after the one before.

    >>> session_window("ts", "10 seconds").gap
    10000000
    """

    time_column: str
    gap: Micros
    name: str = "session_window"
    time: Column | None = None  # as that of ``Window``

    def alias(self, name: str) -> SessionWindow:
        """The same sessions with another name for their output column."""
        _check_alias(name)
        return replace(self, name=name)


@dataclass(frozen=True)
class DynamicSessionWindow:
    """Sessions of a key whose rows each have a gap of their own: a row's session lasts until its ``ends``, and rows of
    a key whose times until their ends touch are of one session.

    ``ends``: a column of the event time's type.
    """

    time_column: str
    ends: str
    name: str = "session_window"

    def alias(self, name: str) -> DynamicSessionWindow:
        """The same sessions with another name for their output column."""
        _check_alias(name)
        return replace(self, name=name)


@dataclass(frozen=True)
class CountWindow:
    """``size`` rows of a key, one such window every ``slide`` rows.

    >>> count_window(100).slide
    100
    """

    size: int
    slide: int
    event_time: str | None = None  # name of an output column with the largest event time of a window's rows
    name: str = "window"

    def alias(self, name: str) -> CountWindow:
        """The same windows with another name for their output column."""
        _check_alias(name)
        return replace(self, name=name)


@dataclass(frozen=True)
class CustomWindow:
    """Windows that ``assign`` gives each event time."""

    time_column: str
    assign: Callable[..., object]
    trigger: Callable[..., object] | None = None
    name: str = "window"
    time: Column | None = None  # as that of ``Window``

    def alias(self, name: str) -> CustomWindow:
        """The same windows with another name for their output column."""
        _check_alias(name)
        return replace(self, name=name)


AnySession: TypeAlias = SessionWindow | DynamicSessionWindow
TimeWindow: TypeAlias = Window | AnySession | CustomWindow
AnyWindow: TypeAlias = TimeWindow | CountWindow


def window(
    timeColumn: ColumnOrName,
    windowDuration: Duration,
    slideDuration: Duration | None = None,
    startTime: Duration | None = None,
) -> Window:
    """Tumbling windows, or with ``slideDuration`` sliding ones. The output column is ``struct<start, end>``.

    >>> window("ts", "1 hour", startTime="15 minutes").offset
    900000000
    """
    name, time = _time_column(timeColumn, "window")
    size = parse_duration(windowDuration, "window: windowDuration")
    slide = size if slideDuration is None else parse_duration(slideDuration, "window: slideDuration")
    if slide > size:
        raise AnalysisError(
            f"window: slideDuration ({format_duration(slide)}) is longer than windowDuration "
            f"({format_duration(size)}), so that rows between two windows would be lost: make the slide at most the "
            f"window"
        )
    start = 0 if startTime is None else parse_duration(startTime, "window: startTime", zero_ok=True, negative_ok=True)
    if abs(start) >= slide:
        raise AnalysisError(
            f"window: startTime ({format_duration(start)}) must be shorter than the slide ({format_duration(slide)}): "
            f"windows repeat every slide, so use the remainder, {format_duration(start % slide)}"
        )
    return Window(name, size, slide, Micros(start % slide), time=time)


def session_window(timeColumn: ColumnOrName, gapDuration: Duration) -> SessionWindow:
    """Sessions that end ``gapDuration`` after their last row. The output column is ``struct<start, end>``.

    As in Spark, a row exactly at a session's end still belongs to it, and a row is late where the session that it would
    make alone, ``[time, time + gap)``, ended by the watermark before its epoch.

    >>> session_window("ts", "5 minutes").alias("visit").name
    'visit'
    """
    name, time = _time_column(timeColumn, "session_window")
    return SessionWindow(name, parse_duration(gapDuration, "session_window: gapDuration"), time=time)


def count_window(size: int, slide: int | None = None, eventTime: str | None = None) -> CountWindow:
    """Every ``size`` rows of a key are a window, whose row is given when it is full. The output column is its number.

    With ``slide`` a window begins every so many rows, so that windows overlap: that with number ``i`` has ``size`` rows
    from the key's row ``i * slide`` on.

    A key's windows are numbered from 0. Rows count epoch by epoch; inside an epoch by event time where the stream has
    one (by its watermark), then by the columns that are aggregated, in the order in which the stream has them: so that
    a replay fills the same windows. No row is late.

    ``eventTime``: name of an output column with the largest event time of a window's rows, for windows over windows.
    With it, rows before the watermark are late: output must not be older than the watermark that the next operator
    already has.

    >>> count_window(100).alias("hundred").name
    'hundred'
    """
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= COUNT_MAX:
        raise AnalysisError(
            f"count_window: size must be a whole number from 1 to {COUNT_MAX:,}, but is {size!r}: count_window(100)"
        )
    if slide is not None and (isinstance(slide, bool) or not isinstance(slide, int) or not 1 <= slide <= size):
        raise AnalysisError(
            f"count_window: slide must be a whole number from 1 to the window's size ({size}), so that every row is in "
            f"a window, but is {slide!r}: count_window(100, 10)"
        )
    if eventTime is not None and (not isinstance(eventTime, str) or not eventTime):
        raise AnalysisError(
            f"count_window: eventTime takes the name of an output column, but got {eventTime!r}: "
            f"count_window(100, eventTime='at')"
        )
    return CountWindow(size, size if slide is None else slide, eventTime)


def custom_window(
    timeColumn: ColumnOrName, assign: Callable[..., object], trigger: Callable[..., object] | None = None
) -> CustomWindow:
    """Windows of your own: ``assign`` takes event times and gives ``(starts, ends)``, one window for each time.

    It is called in Spark's tasks with a whole batch, ``numpy.datetime64[us]`` (UTC, of a ``timestamp_ntz`` as it
    reads), and gives two arrays of ``numpy.datetime64`` or of Arrow timestamps. Every time must lie in its window,
    ``start <= time < end``, and a start must always come with the same end. It must depend on nothing but the times.

    ``trigger`` says when a window will probably be read: ``(starts, ends, times of rows that came)`` to times; at its
    end by default. It only helps the store to read ahead: a wrong guess costs time, never a row.

    >>> import numpy as np
    >>> def days(times):
    ...     start = times.astype("datetime64[D]")
    ...     return start, start + np.timedelta64(1, "D")
    >>> custom_window("ts", days).name
    'window'
    """
    name, time = _time_column(timeColumn, "custom_window", "assign")
    for what, function in (("assign", assign), ("trigger", trigger)):
        if not callable(function) and not (what == "trigger" and function is None):
            raise AnalysisError(
                f"custom_window: {what} takes a function of arrays, but got {function!r} ({type(function).__name__}): "
                f"custom_window('ts', days) where days(times) gives (starts, ends)"
            )
    return CustomWindow(name, assign, trigger, time=time)


def _time_column(given: object, where: str, then: str = "'10 seconds'") -> tuple[str, Column | None]:
    """The name of a column, or the Column in its place."""
    if isinstance(given, Column):
        return "", given
    if not isinstance(given, str) or not given:
        raise AnalysisError(
            f"{where}: timeColumn takes a column's name or a Column, but got {given!r} ({type(given).__name__}): "
            f"{where}('ts', {then})"
        )
    return unquoted(given), None


def has_columns(groups: Iterable[object]) -> bool:
    """Whether PySpark's Columns are among groups, or in windows among them."""
    return any(isinstance(each, Column) or getattr(each, "time", None) is not None for each in groups)


def _check_alias(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise AnalysisError(f"alias takes a name that is not empty, but got {name!r}: .alias('hour')")
