"""Windows of event time that are the same for all keys: tumbling and sliding ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tailrace.api.duration import format_duration
from tailrace.ids import Micros
from tailrace.operators.windows.panes import Panes
from tailrace.operators.windows.window_kind import WindowBase, WindowKind

_FOREVER = 2**63 - 1


@dataclass(frozen=True)
class TimeWindowSpec(WindowBase):
    """Windows ``[start, start + size)`` with ``start = offset + k * slide``; tumbling where slide equals size.

    ``lasts``: of windows that rows bring with them, from an operator upstream. A row's time is then its window's start,
    ``size`` and ``slide`` are the distance of two starts, and a window ends ``lasts`` after its start.
    """

    kind: ClassVar[str] = "time"

    size: Micros
    slide: Micros
    offset: Micros
    lasts: Micros | None = None

    @property
    def window_kind(self) -> WindowKind:
        return WindowKind.TUMBLING if self.tumbling else WindowKind.SLIDING

    @property
    def length(self) -> Micros:
        """From a window's start to its end."""
        return self.size if self.lasts is None else self.lasts

    @property
    def panes(self) -> Panes:
        """The widest spans that no window's edge cuts.

        Windows start every slide, and end so much after a start as the size is longer than whole slides. So a slide is
        one pane, or two; spans of equal width that no edge cuts may be a thousand times as many.
        """
        return Panes(self.slide, self.offset, self.size % self.slide)

    @property
    def pane_offsets(self) -> np.ndarray:
        """Where the panes of a window start, from the window's start on."""
        slides = np.arange(0, self.size, self.slide, dtype=np.int64)
        cut = self.size % self.slide
        return np.stack([slides, slides + cut], axis=1).reshape(-1)[:-1] if cut else slides

    @property
    def tumbling(self) -> bool:
        return self.size == self.slide

    def last_ends(self, times: np.ndarray) -> np.ndarray:
        """When the last window ends that holds each time. The slide is at most the size, so that every time has one."""
        ends: np.ndarray = self.offset + (times - self.offset) // self.slide * self.slide + self.length
        return ends

    def first_open_pane(self, watermark: int) -> int:
        """Start of the first pane that some window with an end after ``watermark`` holds."""
        # The first open window starts at the smallest offset + k * slide above watermark - length.
        k = (watermark - self.length - self.offset) // self.slide + 1
        return self.offset + k * self.slide

    def holding(self, panes: np.ndarray, ends_after: int, ends_by: int = _FOREVER) -> tuple[np.ndarray, np.ndarray]:
        """(position in ``panes``, window start) for each window that holds the pane, with an end in
        (ends_after, ends_by].
        """
        last = self.offset + (panes - self.offset) // self.slide * self.slide
        positions, starts = [], []
        for back in range(-(-self.size // self.slide)):
            start = last - back * self.slide
            end = start + self.length
            at = np.flatnonzero((start + self.size > panes) & (end > ends_after) & (end <= ends_by))
            positions.append(at)
            starts.append(start[at])
        return np.concatenate(positions), np.concatenate(starts)

    def text(self) -> str:
        if self.lasts is not None:
            return f"{format_duration(self.lasts)} every {format_duration(self.slide)}, as rows bring it"
        text = format_duration(self.size)
        text += ", tumbling" if self.tumbling else f" every {format_duration(self.slide)}"
        return f"{text}, starting at {format_duration(self.offset)}" if self.offset else text

    def lines(self, column: str, time: str | None) -> list[str]:
        count, cut = len(self.pane_offsets), self.size % self.slide
        width = format_duration(self.slide)
        if cut and 2 * cut == self.slide:
            width = format_duration(cut)
        elif cut:
            width = f"{format_duration(cut)} and {format_duration(self.slide - cut)} by turns"
        panes = ", one a window"
        if count > 1:
            panes = f", {count} a window; a row is kept in one pane, windows are made of panes"
        return [*super().lines(column, time), f"panes of {width}{panes}"]
