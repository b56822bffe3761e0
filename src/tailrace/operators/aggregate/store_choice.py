"""Which store keeps the state of an aggregation, and why.

The tables are data so that ``explain`` can quote them. Incremental aggregates are a few mergeable values in a record,
which is read, modified and written; others need all rows of a group, which are appended and read when the window ends.
"""

from __future__ import annotations

from tailrace.errors import AnalysisError
from tailrace.operators.aggregate.spec import AggregateSpec, needs_rows
from tailrace.operators.pattern import Pattern
from tailrace.operators.planning.store_choice import StoreChoice
from tailrace.operators.windows.window_kind import WindowKind

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
    WindowKind.COUNT: StoreChoice(
        Pattern.RMW,
        "the aggregates are incremental and windows are full key by key: one record a key, of its open window, changed "
        "in place; it also knows the window's number, so there is one for each key, for ever without a time-to-live",
    ),
    WindowKind.CUSTOM: StoreChoice(
        Pattern.RMW,
        "the aggregates are incremental and each row is in one window: one record a key and window, changed in place",
    ),
}


HOLISTIC: dict[WindowKind, StoreChoice] = {
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
    WindowKind.COUNT: StoreChoice(
        Pattern.AUR,
        "an aggregate needs every row of its group, and windows are full key by key: rows are appended by key and "
        "window, read when it is full, and dropped; a count stays for each key, for ever without a time-to-live",
    ),
    WindowKind.CUSTOM: StoreChoice(
        Pattern.AUR,
        "an aggregate needs every row of its group, and windows of your own may start and end in any order: rows are "
        "appended by key and window, and those that will be read next are read ahead, many together",
    ),
    WindowKind.GLOBAL: StoreChoice(
        Pattern.AUR,
        "an aggregate needs every row of its group, and there is no window: rows are appended by key, and all rows of "
        "the keys that changed are read in every epoch; nothing is ever dropped, so the state grows with every row",
    ),
}


OVERLAPPING_COUNT = StoreChoice(
    Pattern.RMW,
    "the aggregates are incremental and windows by count overlap: a record for each pane of a key's open windows, "
    "changed in place; a row is merged into three of them at most, and a window is made of two, whatever the overlap; "
    "one of them also counts, so it stays for each key, for ever without a time-to-live",
)
OVERLAPPING_COUNT_ROWS = StoreChoice(
    Pattern.AUR,
    "windows by count overlap and are full key by key: rows are appended by key and pane, once whatever the overlap, "
    "read when a window is full, and dropped with the last one; a count stays for each key, for ever without a "
    "time-to-live",
)
"""Where every row is needed, or for whoever asks for it."""


_ROWS_BY_LIST = "every row is appended by key and window and read when the window ends"
OTHERS: dict[tuple[Pattern, WindowKind], str] = {
    (Pattern.AAR, WindowKind.TUMBLING): "every row is appended by window, and all keys' rows are read when it ends",
    (Pattern.AAR, WindowKind.SLIDING): "every row is appended by pane, and all keys' rows are read when a window ends",
    (Pattern.AAR, WindowKind.CUSTOM): "every row is appended by window, and all keys' rows are read when it ends",
    (Pattern.AUR, WindowKind.TUMBLING): _ROWS_BY_LIST,
    (Pattern.AUR, WindowKind.SLIDING): (
        "every row is appended by key and pane, once whatever the overlap, read for each window that ends, and dropped "
        "with the last one"
    ),
    (Pattern.AUR, WindowKind.CUSTOM): _ROWS_BY_LIST,
    (Pattern.AUR, WindowKind.SESSION): "every row is appended by key and pane and read when its session ends",
    (Pattern.AUR, WindowKind.COUNT): "every row is appended by key and window and read when the window is full",
    (Pattern.AUR, WindowKind.GLOBAL): (
        "every row is appended by key, and all rows of the keys that changed are read in every epoch; nothing is ever "
        "dropped, so the state grows with every row"
    ),
}
"""Stores that give the same answer as the usual one, for whoever asks for them, and what they do."""

_UNALIGNED = "AAR drops the rows of all keys at once when a window ends, and {} end key by key"
REFUSED: dict[tuple[Pattern, WindowKind], str] = {
    (Pattern.AAR, WindowKind.SESSION): _UNALIGNED.format("sessions"),
    (Pattern.AAR, WindowKind.COUNT): _UNALIGNED.format("windows by count"),
    (Pattern.AAR, WindowKind.GLOBAL): "AAR drops rows when a window ends, and without a window none ever does",
}


def choose_store(operator: AggregateSpec) -> StoreChoice:
    """The store that semantics ask for, or the one that the user has chosen."""
    usual = (HOLISTIC if operator.holistic else INCREMENTAL)[operator.window_kind]
    overlapping = operator.count_window is not None and operator.count_window.overlapping
    if overlapping:
        usual = OVERLAPPING_COUNT if operator.usual_pattern is Pattern.RMW else OVERLAPPING_COUNT_ROWS
    if operator.store is None:
        return usual
    wanted = operator.pattern
    if wanted is usual.pattern:
        return StoreChoice(wanted, usual.reason, by_user=True)
    if wanted is Pattern.RMW:
        needing = next((out.name for out in operator.outputs if needs_rows(out)), None)
        problem = (
            "sets, sketches and states of your own are not merged by panes of windows by count that overlap"
            if needing is None
            else f"a record of it holds a few merged values, and {needing} needs every row of its group"
        )
    elif wanted is Pattern.AUR and overlapping:
        return StoreChoice(wanted, OVERLAPPING_COUNT_ROWS.reason, by_user=True)
    elif (wanted, operator.window_kind) in OTHERS:
        return StoreChoice(wanted, OTHERS[wanted, operator.window_kind], by_user=True)
    else:
        problem = REFUSED[wanted, operator.window_kind]
    raise AnalysisError(
        f"{operator.name}: store {wanted} cannot keep this: {problem}. Without .store(...) it is {usual.pattern}"
    )
