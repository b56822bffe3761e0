"""What an oracle is asked: a streaming aggregation as plain data, with no engine in it.

The words follow the public interface, but nothing here imports it: an oracle that shared code with what it judges would
share its mistakes. All spans and points in time are whole microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Aggregate:
    """One output column. ``column`` is ``None`` only for ``count``, which then counts rows.

    ``function`` is a name in ``pyspark.sql.functions``, or ``quantile`` or ``top_k``.
    """

    function: str
    column: str | None
    name: str
    ignore_nulls: bool = False
    argument: float | None = None  # the share of a quantile, the length of a top list

    def __post_init__(self) -> None:
        if self.column is None and self.function != "count":
            raise ValueError(f"{self.function} needs a column")


@dataclass(frozen=True)
class Windows:
    """Windows ``[start, start + size)`` where ``start = offset + k * slide`` for every integer k."""

    size: int
    slide: int
    offset: int = 0

    def starts(self, time: int) -> list[int]:
        """Starts of all windows that hold ``time``, smallest first. Floor division, so negative times need no care."""
        newest = time - (time - self.offset) % self.slide
        starts = []
        start = newest
        while start > time - self.size:
            starts.append(start)
            start -= self.slide
        return starts[::-1]


@dataclass(frozen=True)
class Question:
    """A streaming aggregation.

    ``rule`` says which watermark closes windows: ``"tailrace"`` closes by the one that includes the batch at hand,
    ``"spark"`` by the one before it, in whole milliseconds, and never below 1970.
    """

    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    windows: Windows | None = None
    time_column: str | None = None
    delay: int | None = None
    output_mode: str = "append"
    rule: str = "tailrace"
    session_gap: int | None = None  # sessions, in place of windows
    session_ends: str | None = None  # sessions whose rows have a gap of their own: a column with when each one's ends

    @property
    def has_sessions(self) -> bool:
        return self.session_gap is not None or self.session_ends is not None

    @property
    def window_column(self) -> str | None:
        """The output's column of windows, a struct of ``start`` and ``end``."""
        if self.has_sessions:
            return "session_window"
        return None if self.windows is None else "window"

    def __post_init__(self) -> None:
        if self.output_mode not in ("append", "update", "complete"):
            raise ValueError(f"output mode {self.output_mode!r} is none of append, update and complete")
        if self.rule not in ("tailrace", "spark"):
            raise ValueError(f"watermark rule {self.rule!r} is neither tailrace nor spark")
        if sum(each is not None for each in (self.windows, self.session_gap, self.session_ends)) > 1:
            raise ValueError("a question has windows or sessions, of one gap or of rows' own, and not both")
        windowed = self.windows is not None or self.has_sessions
        if windowed and self.time_column is None:
            raise ValueError("windows need a time column")
        if self.output_mode == "append" and (not windowed or self.delay is None):
            raise ValueError("append emits closed windows: it needs windows and a delay")
