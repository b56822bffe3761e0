"""Sessions whose rows each have a gap of their own, as ``session_window`` with an expression for the gap has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tailrace.operators.windows.window_kind import WindowBase, WindowKind


@dataclass(frozen=True)
class DynamicSessionSpec(WindowBase):
    """``ends``: a column of the input, of the event time's type: when the session ends that a row would make alone.

    A row whose end is missing, or not after its time, is of no session.
    """

    kind: ClassVar[str] = "dynamic session"
    by_key: ClassVar[bool] = True

    ends: str

    @property
    def window_kind(self) -> WindowKind:
        return WindowKind.SESSION

    def text(self) -> str:
        return f"sessions of rows with a gap of their own, until {self.ends}"

    def lines(self, column: str, time: str | None) -> list[str]:
        kept = "a row is kept in a numbered part of its key, sessions are made of parts"
        return [*super().lines(column, time), kept]
