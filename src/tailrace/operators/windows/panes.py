"""Panes: spans of event time in which state lies. Nothing here touches Spark or Arrow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailrace.ids import Micros


@dataclass(frozen=True)
class Panes:
    """Spans of event time, one after the other: they start at ``offset`` and every ``width`` from there.

    ``cut``: where it is not 0 each of these is two panes, of which the second starts so much later.
    """

    width: Micros
    offset: int = 0
    cut: int = 0

    def of(self, times: np.ndarray) -> np.ndarray:
        """Where the panes of these event times start."""
        inside = (times - self.offset) % self.width
        if self.cut:
            inside -= self.cut * (inside >= self.cut)
        starts: np.ndarray = times - inside
        return starts

    def ends(self, starts: np.ndarray) -> np.ndarray:
        """Where the panes end that start there."""
        inside = (starts - self.offset) % self.width
        ends: np.ndarray = starts - inside + self.width
        if self.cut:
            ends = np.where(inside < self.cut, starts + self.cut, ends)
        return ends
