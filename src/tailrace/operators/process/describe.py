"""A user's function of rows and state in a user's words, for ``explain`` and for the refusal of a changed query."""

from __future__ import annotations

from tailrace.operators.kind import Description
from tailrace.operators.pattern import Pattern, StoreChoice
from tailrace.operators.planning.texts import fields_text, time_parts
from tailrace.operators.planning.ttl import CLOCK_TEXTS, ttl_clock_text, ttl_lines
from tailrace.operators.process.spec import ProcessSpec
from tailrace.operators.timers.ttl import Clock

_PASSED = {Clock.EVENT: "the watermark has reached it", Clock.PROCESSING: "an epoch begins at or after it"}


def process_lines(operator: ProcessSpec) -> list[str]:
    lines = [
        f"your function of the rows and the state of each {fields_text(operator.keys, 'epoch: one group')}",
        f"rows: {fields_text(operator.rows, 'only group columns')}",
        f"state: {fields_text(operator.state)}",
        f"output: {fields_text(operator.outputs)}",
    ]
    if operator.timers is not None and operator.timers_clock is not None:
        lines.append(f"a key is due when {operator.timers} has passed: {_PASSED[operator.timers_clock]}")
    if operator.time_name is not None:
        lines.append(f"event time of the output in column {operator.time_name}")
    return [*lines, *ttl_lines(operator.ttl)]


def process_parts(operator: ProcessSpec) -> dict[str, str]:
    clock = operator.timers_clock
    return {
        "group columns": fields_text(operator.keys),
        "state": fields_text(operator.state),
        "timers": "none" if clock is None else f"{operator.timers} {CLOCK_TEXTS[clock]}",
        **time_parts(operator.time_column, operator.time_name),
        "time-to-live": ttl_clock_text(operator.ttl),
        "output": fields_text(operator.outputs),
    }


_STORE = StoreChoice(
    Pattern.RMW, "the state of a key is read, given to your function and written: one record a key, changed in place"
)
DESCRIPTION = Description(
    title=lambda spec: "Process",
    lines=process_lines,
    parts=process_parts,
    store=lambda spec: _STORE,
    undropped=lambda spec: "state stays until your function drops it",
)
