"""Windows that a user's function gives each event time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tailrace.ids import Micros
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.operators.windows.window_kind import WindowBase

BY_END = TimeWindowSpec(Micros(1), Micros(1), Micros(0), lasts=Micros(0))
"""A user's own windows as they lie in panes: each in a pane that is its end, so that panes close in their order.

They may start in any order and overlap. Where a window starts is part of the key of its records.
"""


@dataclass(frozen=True)
class CustomWindowSpec(WindowBase):
    """``assign``: the function of an array of times, which gives ``(starts, ends)``.

    ``trigger``: the user's estimate of when a window will be read; None: at its end. Both are cloudpickle in base64.
    """

    kind: ClassVar[str] = "custom"

    assign: str
    trigger: str | None = None

    def text(self) -> str:
        return "of your function"

    def lines(self, column: str, time: str | None) -> list[str]:
        when = "at its end" if self.trigger is None else "as your estimate says"
        return [*super().lines(column, time), f"a window is expected to be read {when}"]

    def without_code(self) -> CustomWindowSpec:
        return CustomWindowSpec("", None if self.trigger is None else "")

    def for_tasks(self) -> CustomWindowSpec:
        return replace(self, trigger=None)
