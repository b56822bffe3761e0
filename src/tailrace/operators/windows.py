"""Windows of event time as plain data. Nothing here touches Spark or Arrow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailrace.ids import Micros


@dataclass(frozen=True)
class Panes:
    """Spans of event time, one after the other: they start at ``offset`` and every ``width`` from there."""

    width: Micros
    offset: int = 0

    def of(self, times: np.ndarray) -> np.ndarray:
        """Where the panes of these event times start."""
        starts: np.ndarray = self.offset + (times - self.offset) // self.width * self.width
        return starts


@dataclass(frozen=True)
class WindowSpec:
    """Windows ``[start, start + size)`` with ``start = offset + k * slide``; tumbling where slide equals size.

    ``lasts``: of windows that rows bring with them, from an operator upstream. A row's time is then its window's start,
    ``size`` and ``slide`` are the distance of two starts, and a window ends ``lasts`` after its start.
    """

    size: Micros
    slide: Micros
    offset: Micros
    lasts: Micros | None = None

    @property
    def length(self) -> Micros:
        """From a window's start to its end."""
        return self.size if self.lasts is None else self.lasts

    @property
    def pane(self) -> Micros:
        """The width of a pane: the widest span that no window edge ever cuts."""
        a, b = self.size, self.slide
        while b:
            a, b = Micros(b), Micros(a % b)
        return a

    @property
    def panes(self) -> Panes:
        return Panes(self.pane, self.offset)

    @property
    def tumbling(self) -> bool:
        return self.size == self.slide


@dataclass(frozen=True)
class CustomSpec:
    """Windows that the user's function gives each event time: ``(starts, ends)`` of an array of times.

    ``trigger``: the user's estimate of when a window will be read; None: at its end. Both are cloudpickle in base64.
    """

    assign: str
    trigger: str | None = None


BY_END = WindowSpec(Micros(1), Micros(1), Micros(0), lasts=Micros(0))
"""A user's own windows as they lie in panes: each in a pane that is its end, so that panes close in their order.

They may start in any order and overlap. Where a window starts is part of the key of its records.
"""
