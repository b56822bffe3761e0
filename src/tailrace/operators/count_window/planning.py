"""Windows by count in the plan of an aggregation."""

from __future__ import annotations

from tailrace.api.windows import CountWindow
from tailrace.operators.aggregate.accumulators import STAMP, Accumulator
from tailrace.operators.aggregate.functions.counts_and_sums import ROWS
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.aggregate.window_form import WindowForm, WindowStores
from tailrace.operators.pattern import Pattern, StoreChoice
from tailrace.operators.planning.texts import fields_text
from tailrace.operators.windows.count_window import CountWindowSpec
from tailrace.types import Field


def _plan(window: CountWindow, expires: bool) -> CountWindowSpec:
    slide = window.slide if window.slide < window.size else None
    return CountWindowSpec(window.size, slide, in_time=expires and window.event_time is not None)


def _accumulators(window: CountWindow, time: Field | None, expires: bool) -> list[Accumulator]:
    """Rows come first: they say how full a window is. The last update is the key's, not of a window's rows."""
    return [ROWS, STAMP] if expires else [ROWS]


def _lines(operator: AggregateSpec) -> list[str]:
    order = "" if operator.time_column is None else f"by {operator.time_column.name}, then "
    lines = [f"rows of an epoch count {order}by {fields_text(operator.rows, 'nothing: all are alike')}"]
    if operator.ttl is not None:
        lines.append("the open window of a key that is forgotten is never given; the key's next one is number 0")
    return lines


_REFUSED = {
    Pattern.AAR: "AAR drops the rows of all keys at once when a window ends, and windows by count end key by key",
}
_STORES = WindowStores(
    incremental=StoreChoice(
        Pattern.RMW,
        "the aggregates are incremental and windows are full key by key: one record a key, of its open window, changed "
        "in place; it also knows the window's number, so there is one for each key, for ever without a time-to-live",
    ),
    holistic=StoreChoice(
        Pattern.AUR,
        "an aggregate needs every row of its group, and windows are full key by key: rows are appended by key and "
        "window, read when it is full, and dropped; a count stays for each key, for ever without a time-to-live",
    ),
    others={Pattern.AUR: "every row is appended by key and window and read when the window is full"},
    refused=_REFUSED,
)
_ROWS_OF_OVERLAPPING = StoreChoice(
    Pattern.AUR,
    "windows by count overlap and are full key by key: rows are appended by key and pane, once whatever the overlap, "
    "read when a window is full, and dropped with the last one; a count stays for each key, for ever without a "
    "time-to-live",
)
_OVERLAPPING = WindowStores(
    incremental=StoreChoice(
        Pattern.RMW,
        "the aggregates are incremental and windows by count overlap: a record for each pane of a key's open windows, "
        "changed in place; a row is merged into three of them at most, and a window is made of two, whatever the "
        "overlap; one of them also counts, so it stays for each key, for ever without a time-to-live",
    ),
    holistic=_ROWS_OF_OVERLAPPING,
    others={Pattern.AUR: _ROWS_OF_OVERLAPPING.reason},
    refused={
        **_REFUSED,
        Pattern.RMW: "sets, sketches and states of your own are not merged by panes of windows by count that overlap",
    },
)

COUNT = WindowForm(
    window=CountWindow,
    spec=CountWindowSpec,
    plan=_plan,
    stores=lambda spec: _OVERLAPPING if spec.overlapping else _STORES,
    accumulators=_accumulators,
    lines=_lines,
)
