"""Windows over event time, as ``window`` and ``session_window`` of ``pyspark.sql.functions`` make them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from tailrace.api.columns import unquoted
from tailrace.api.duration import Duration, format_duration, parse_duration
from tailrace.errors import AnalysisError
from tailrace.ids import Micros


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

    def alias(self, name: str) -> SessionWindow:
        """The same sessions with another name for their output column."""
        _check_alias(name)
        return replace(self, name=name)


AnyWindow: TypeAlias = Window | SessionWindow


def window(
    timeColumn: str,
    windowDuration: Duration,
    slideDuration: Duration | None = None,
    startTime: Duration | None = None,
) -> Window:
    """Tumbling windows, or with ``slideDuration`` sliding ones. The output column is ``struct<start, end>``.

    >>> window("ts", "1 hour", startTime="15 minutes").offset
    900000000
    """
    _check_time_column(timeColumn, "window")
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
    return Window(unquoted(timeColumn), size, slide, Micros(start % slide))


def session_window(timeColumn: str, gapDuration: Duration) -> SessionWindow:
    """Sessions that end ``gapDuration`` after their last row. The output column is ``struct<start, end>``.

    As in Spark, a row exactly at a session's end still belongs to it, and a row is late where the session that it would
    make alone, ``[time, time + gap)``, ended by the watermark before its epoch.

    >>> session_window("ts", "5 minutes").alias("visit").name
    'visit'
    """
    _check_time_column(timeColumn, "session_window")
    return SessionWindow(unquoted(timeColumn), parse_duration(gapDuration, "session_window: gapDuration"))


def _check_time_column(name: object, where: str) -> None:
    if not isinstance(name, str) or not name:
        raise AnalysisError(
            f"{where}: timeColumn takes a column's name, but got {name!r} ({type(name).__name__}): "
            f"{where}('ts', '10 seconds')"
        )


def _check_alias(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise AnalysisError(f"alias takes a name that is not empty, but got {name!r}: .alias('hour')")
