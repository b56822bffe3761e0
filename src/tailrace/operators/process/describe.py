"""A user's function of rows and state in a user's words, for ``explain`` and for the refusal of a changed query."""

from __future__ import annotations

from tailrace.api.duration import format_duration
from tailrace.operators.process.spec import ProcessSpec
from tailrace.operators.timers.ttl import Clock, Ttl
from tailrace.plan.words import field_text, fields_text

_CLOCKS = {Clock.EVENT: "in event time", Clock.PROCESSING: "in processing time"}
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
        "timers": "none" if clock is None else f"{operator.timers} {_CLOCKS[clock]}",
        "event time column": field_text(operator.time_column),
        "event time of the output": operator.time_name or "none",
        "time-to-live": ttl_clock_text(operator.ttl),
        "output": fields_text(operator.outputs),
    }


def ttl_lines(ttl: Ttl | None) -> list[str]:
    if ttl is None:
        return []
    mark = "the watermark" if ttl.clock is Clock.EVENT else "the time at which an epoch begins"
    span = format_duration(ttl.span)
    return [f"time-to-live {span} {_CLOCKS[ttl.clock]}: a key is forgotten that was last updated {span} before {mark}"]


def ttl_clock_text(ttl: Ttl | None) -> str:
    """How long it is may change: records know when they were updated."""
    return "none" if ttl is None else _CLOCKS[ttl.clock]
