"""Windows over event time, as ``pyspark.sql.functions.window`` makes them."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
        if not isinstance(name, str) or not name:
            raise AnalysisError(f"alias takes a name that is not empty, but got {name!r}: .alias('hour')")
        return replace(self, name=name)


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
    if not isinstance(timeColumn, str) or not timeColumn:
        raise AnalysisError(
            f"window: timeColumn takes a column's name, but got {timeColumn!r} ({type(timeColumn).__name__}): "
            f"window('ts', '10 seconds')"
        )
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
