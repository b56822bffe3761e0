"""Sessions: rows of a key, each at most a gap after the one before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tailrace.api.duration import format_duration
from tailrace.ids import Micros
from tailrace.operators.windows.panes import Panes
from tailrace.operators.windows.window_kind import WindowBase


@dataclass(frozen=True)
class SessionWindowSpec(WindowBase):
    """A session ends ``gap`` after its last row. Its state lies in panes as wide as that."""

    kind: ClassVar[str] = "session"
    by_key: ClassVar[bool] = True

    gap: Micros

    @property
    def panes(self) -> Panes:
        return Panes(self.gap)

    def last_ends(self, times: np.ndarray) -> np.ndarray:
        """When the sessions end that rows of these times would make alone.

        As in Spark a row is late by that: whether it belongs to a session that is still open, only the state knows.
        """
        ends: np.ndarray = times + self.gap
        return ends

    def text(self) -> str:
        return f"sessions of rows at most {format_duration(self.gap)} apart"

    def lines(self, column: str, time: str | None) -> list[str]:
        panes = f"panes of {format_duration(self.gap)}; a row is kept in one pane, sessions are made of panes"
        return [*super().lines(column, time), panes]
