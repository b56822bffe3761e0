"""The best rows of each group in a user's words, for ``explain`` and for the refusal of a changed query."""

from __future__ import annotations

from tailrace.operators.aggregate.describe import group_lines
from tailrace.operators.kind import Description
from tailrace.operators.pattern import Pattern, StoreChoice
from tailrace.operators.planning.texts import field_text, fields_text
from tailrace.operators.planning.ttl import ttl_clock_text, ttl_lines
from tailrace.operators.planning.windows import timeless_text, undropped_text
from tailrace.operators.top_n.spec import TopNSpec
from tailrace.operators.windows.any_window import window_kind_of, window_text
from tailrace.operators.windows.window_kind import WindowKind


def top_n_lines(operator: TopNSpec) -> list[str]:
    best = f"the best {operator.n:,} rows of each, by {order_text(operator)}"
    if not operator.keeps_rows:
        lines = [best, f"keeps {_kept(operator)}"]
    elif operator.latest is None:
        lines = [f"{best}; chosen of all, which are kept"]
    else:
        lines = [f"{best}; chosen of all, which are kept; {operator.latest}: the largest event time of all"]
    return [*group_lines(operator.kept()), *lines, *ttl_lines(operator.ttl)]


def top_n_parts(operator: TopNSpec) -> dict[str, str]:
    return {
        "group columns": fields_text(operator.keys),
        "window": window_text(operator.window),
        "event time column": field_text(operator.time_column),
        "rows of each group": f"{operator.n:,}",
        "order": order_text(operator),
        "columns kept": fields_text(operator.rows),
        "output mode": "update" if operator.emit_changed else "append",
        "time-to-live": ttl_clock_text(operator.ttl),
    }


def order_text(operator: TopNSpec) -> str:
    asked = [f"{each.column} {'ascending' if each.ascending else 'descending'}" for each in operator.order]
    time, by = operator.time_column, {each.column for each in operator.order}
    ties = ["the earlier event time"] if time in operator.rows and time is not None and time.name not in by else []
    return ", then ".join([*asked, *ties, "the smaller other columns"])


def _kept(operator: TopNSpec) -> str:
    pane = " and pane" if operator.time_window is not None and not operator.time_window.tumbling else ""
    return f"at most {operator.n:,} rows a group{pane} ({fields_text(operator.rows)})"


_ONLY_BEST = StoreChoice(
    Pattern.RMW, "only the best rows of a group are kept: one record a group, its rows in one list, cut when rows come"
)
_CHOSEN_AT_END: dict[WindowKind, str] = {
    WindowKind.SESSION: "the best rows are chosen when a session ends, of all its rows, and sessions end key by key",
    WindowKind.COUNT: "the best rows are chosen when a window is full, of all its rows, and windows are key by key",
    WindowKind.CUSTOM: "the best rows are chosen when a window ends, of all its rows, and windows of your own may "
    "start and end in any order",
}


def _store(operator: TopNSpec) -> StoreChoice:
    if not operator.keeps_rows:
        return _ONLY_BEST
    reason = _CHOSEN_AT_END[window_kind_of(operator.window)]
    return StoreChoice(Pattern.AUR, f"{reason}: rows are appended by key and window")


DESCRIPTION = Description(
    title=lambda spec: "Top n",
    lines=top_n_lines,
    parts=top_n_parts,
    store=_store,
    undropped=lambda spec: undropped_text(spec.window, spec.ttl),
    timeless=lambda spec: timeless_text(spec.window),
)
