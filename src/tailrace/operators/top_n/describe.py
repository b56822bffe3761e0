"""The best rows of each group in a user's words, for ``explain`` and for the refusal of a changed query."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.kind import Description
from tailrace.operators.pattern import Pattern
from tailrace.operators.planning.store_choice import StoreChoice
from tailrace.operators.planning.texts import field_text, fields_text
from tailrace.operators.planning.ttl import ttl_clock_text, ttl_lines
from tailrace.operators.top_n.best_spec import Best, Order
from tailrace.operators.top_n.spec import TopNSpec
from tailrace.operators.windows.any_window import window_text


def top_n_lines(operator: TopNSpec) -> list[str]:
    lines = [f"group by {fields_text(operator.keys, 'nothing: one group')}"]
    if operator.window is not None:
        assert operator.time_column is not None
        window, time = window_text(operator.window), operator.time_column.name
        lines.append(f"window {window}, over {time}, in column {operator.window_name}")
    lines += [
        f"the best {operator.n:,} rows of each, by {order_text(operator, operator.order)}",
        f"keeps {_kept(operator)}",
    ]
    return [*lines, *ttl_lines(operator.ttl)]


def top_n_parts(operator: TopNSpec) -> dict[str, str]:
    return {
        "group columns": fields_text(operator.keys),
        "window": window_text(operator.window),
        "event time column": field_text(operator.time_column),
        "rows of each group": f"{operator.n:,}",
        "order": order_text(operator, operator.order),
        "columns kept": fields_text(operator.rows),
        "output mode": "update" if operator.emit_changed else "append",
        "time-to-live": ttl_clock_text(operator.ttl),
    }


def best_line(best: Best, operator: AggregateSpec) -> str:
    line = f"the best {best.n:,} rows of each, by {order_text(operator, best.order)}; chosen of all, which are kept"
    return line if best.time is None else f"{line}; {best.time}: the largest event time of all"


def best_parts(operator: AggregateSpec, best: Best, window: str) -> dict[str, str]:
    """The same as those above, where all rows are kept."""
    return {
        "group columns": fields_text(operator.keys),
        "window": window,
        "event time column": field_text(operator.time_column),
        "rows of each group": f"{best.n:,}",
        "order": order_text(operator, best.order),
        "columns kept": fields_text(operator.rows),
        "output mode": "update" if operator.emit_changed else "append",
        "time-to-live": ttl_clock_text(operator.ttl),
    }


def order_text(operator: TopNSpec | AggregateSpec, order: Sequence[Order]) -> str:
    asked = [f"{each.column} {'ascending' if each.ascending else 'descending'}" for each in order]
    time, by = operator.time_column, {each.column for each in order}
    ties = ["the earlier event time"] if time in operator.rows and time is not None and time.name not in by else []
    return ", then ".join([*asked, *ties, "the smaller other columns"])


def _kept(operator: TopNSpec) -> str:
    pane = " and pane" if operator.window is not None and not operator.window.tumbling else ""
    return f"at most {operator.n:,} rows a group{pane} ({fields_text(operator.rows)})"


_STORE = StoreChoice(
    Pattern.RMW, "only the best rows of a group are kept: one record a group, its rows in one list, cut when rows come"
)


DESCRIPTION = Description(
    title=lambda spec: "Top n",
    lines=top_n_lines,
    parts=top_n_parts,
    store=lambda spec: _STORE,
    undropped=lambda spec: "state is never dropped" if spec.ttl is None else "state goes by its time-to-live",
)
