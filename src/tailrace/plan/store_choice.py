"""Which store keeps an operator's state, and why.

The tables are data so that ``explain`` can quote them. Incremental aggregates are a few mergeable values in a record,
which is read, modified and written; others need all rows of a group, which are appended and read when the window ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tailrace.operators.specs.aggregate import AggregateSpec
from tailrace.operators.specs.join import JoinKind, JoinSpec
from tailrace.operators.specs.operator import OperatorSpec


class Pattern(StrEnum):
    """How state is accessed."""

    RMW = "RMW"  # read, modify, write: one record for each key (and pane), changed in place
    AAR = "AAR"  # append and aligned read: rows by window, which all keys leave at the same time
    AUR = "AUR"  # append and unaligned read: rows by key and window, each read at a time of its own


class WindowKind(StrEnum):
    GLOBAL = "global"
    TUMBLING = "tumbling"
    SLIDING = "sliding"
    SESSION = "session"


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
    WindowKind.SESSION: StoreChoice(
        Pattern.RMW,
        "the aggregates are incremental and sessions end key by key: one record a key and pane as wide as the gap, "
        "changed in place; records that touch are merged, and go, when their session ends",
    ),
}


WHOLE_GROUP: dict[WindowKind, StoreChoice] = {
    WindowKind.TUMBLING: StoreChoice(
        Pattern.AAR,
        "an aggregate needs every row of its group, and all keys' windows end together: rows are appended by window, "
        "read in pieces when it ends, and dropped as a whole",
    ),
    WindowKind.SLIDING: StoreChoice(
        Pattern.AAR,
        "an aggregate needs every row of its group, and all keys' windows end together: rows are appended by pane, "
        "once whatever the overlap, read in pieces when a window ends, and dropped with the last one",
    ),
    WindowKind.SESSION: StoreChoice(
        Pattern.AUR,
        "an aggregate needs every row of its group, and sessions end key by key: rows are appended by key and pane as "
        "wide as the gap, and those that will end next are read ahead, many together",
    ),
}


def window_kind(operator: AggregateSpec) -> WindowKind:
    if operator.session_gap is not None:
        return WindowKind.SESSION
    if operator.window is None:
        return WindowKind.GLOBAL
    return WindowKind.TUMBLING if operator.window.tumbling else WindowKind.SLIDING


JOINS: dict[JoinKind, StoreChoice] = {
    JoinKind.WINDOW: StoreChoice(
        Pattern.AAR,
        "pairs are made when a window ends, of all keys together: rows of both sides are appended by window",
    ),
    JoinKind.INTERVAL: StoreChoice(
        Pattern.AUR, "rows of both sides are appended by key and time, and looked up when a row of the other side comes"
    ),
    JoinKind.CONTINUOUS: StoreChoice(
        Pattern.AUR,
        "rows of both sides are appended by key and end of validity, and looked up when a row of the other side comes",
    ),
    JoinKind.TTL: StoreChoice(
        Pattern.AUR, "rows of both sides are appended by key, and looked up when a row of the other side comes"
    ),
}


def choose_store(operator: OperatorSpec) -> StoreChoice:
    """The store for an operator."""
    match operator:
        case JoinSpec():
            return JOINS[operator.kind]
        case AggregateSpec():
            return (WHOLE_GROUP if operator.keeps_rows else INCREMENTAL)[window_kind(operator)]
    raise AssertionError(f"no store for {operator!r}")
