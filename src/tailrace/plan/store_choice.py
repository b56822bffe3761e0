"""Which store keeps an operator's state, and why.

The table is data so that ``explain`` can quote it. All aggregates so far are incremental (a record is a few mergeable
values, never a list of rows), so every row of the table reads, modifies and writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tailrace.operators.spec import OperatorSpec


class Pattern(StrEnum):
    """How state is accessed."""

    RMW = "RMW"  # read, modify, write: one record for each key (and pane), changed in place


class WindowKind(StrEnum):
    GLOBAL = "global"
    TUMBLING = "tumbling"
    SLIDING = "sliding"


@dataclass(frozen=True)
class StoreChoice:
    pattern: Pattern
    reason: str


INCREMENTAL: dict[WindowKind, StoreChoice] = {
    WindowKind.GLOBAL: StoreChoice(
        Pattern.RMW, "the aggregates are incremental and there is no window: one record a key, changed in place"
    ),
    WindowKind.TUMBLING: StoreChoice(
        Pattern.RMW,
        "the aggregates are incremental and windows do not overlap: one record a key and window, changed in place",
    ),
    WindowKind.SLIDING: StoreChoice(
        Pattern.RMW,
        "the aggregates are incremental and windows overlap: one record a key and pane, one write a row whatever the "
        "overlap",
    ),
}


def window_kind(operator: OperatorSpec) -> WindowKind:
    if operator.window is None:
        return WindowKind.GLOBAL
    return WindowKind.TUMBLING if operator.window.tumbling else WindowKind.SLIDING


def choose_store(operator: OperatorSpec) -> StoreChoice:
    """The store for an operator all of whose aggregates are incremental."""
    return INCREMENTAL[window_kind(operator)]
