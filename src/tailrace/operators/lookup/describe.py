"""A join with a lookup table in a user's words, for ``explain`` and for the refusal of a changed query."""

from __future__ import annotations

from tailrace.api.duration import format_duration
from tailrace.operators.kind import Description
from tailrace.operators.lookup.spec import LookupSpec
from tailrace.operators.pattern import StoreChoice
from tailrace.operators.planning.texts import fields_text, row_parts


def lookup_lines(operator: LookupSpec) -> list[str]:
    unmatched = "are given nulls" if operator.outer else "are left out"
    loss = (
        f"waited for, at most {format_duration(operator.table.retry)}" if operator.table.retry else "an error at once"
    )
    age = operator.table.max_age
    return [
        f"asks {operator.table.shown} for each {fields_text(operator.keys)}; rows that it does not have {unmatched}",
        f"output {fields_text(operator.emits)}",
        f"a lost connection is {loss}",
        *([f"a copy of what it says is used for at most {format_duration(age)}"] if age is not None else []),
    ]


def lookup_parts(operator: LookupSpec) -> dict[str, str]:
    """The table itself may move: no state depends on it."""
    rows = row_parts(operator.keys, operator.rows, operator.time_column)
    join = "left outer" if operator.outer else "inner"
    return {**rows, "columns of the table": fields_text(operator.values), "join": join}


DESCRIPTION = Description(
    title=lambda spec: "Lookup join",
    lines=lookup_lines,
    parts=lookup_parts,
    store=lambda spec: StoreChoice(
        None, "rows of the table are copied into a cache, which may lose any of them at any time"
    ),
    undropped=lambda spec: "a row of the table is copied while there is room",
    timeless=lambda spec: "rows pass with the event times they have",
)
