"""A per-key function of PySpark's in a user's words, for ``explain`` and for the refusal of a changed query."""

from __future__ import annotations

from tailrace.operators.kind import Description
from tailrace.operators.pattern import Pattern, StoreChoice
from tailrace.operators.planning.texts import fields_text, time_parts
from tailrace.operators.planning.ttl import CLOCK_TEXTS
from tailrace.operators.stateful_processor.spec import StatefulProcessorSpec, VariableSpec
from tailrace.operators.timers.ttl import Clock

_PASSED = {Clock.EVENT: "the watermark", Clock.PROCESSING: "the time at which an epoch begins"}


def _lines(operator: StatefulProcessorSpec) -> list[str]:
    lines = [
        f"your Python is called for each {fields_text(operator.keys)} that has rows, key by key",
        f"rows: {fields_text(operator.columns)}",
        *(f"state {_variable_text(variable)}" for variable in operator.variables),
        f"output: {fields_text(operator.outputs)}",
    ]
    if operator.timed and operator.timers_clock is not None:
        reached = "is past" if operator.timeouts else "has reached"
        what = "a key times out" if operator.timeouts else "a timer comes up"
        lines.append(f"{what} when {_PASSED[operator.timers_clock]} {reached} it")
    if operator.time_name is not None:
        lines.append(f"event time of the output in column {operator.time_name}")
    return lines


def _variable_text(variable: VariableSpec) -> str:
    keys, values = variable.fields[: variable.keys], variable.fields[variable.keys :]
    fields = f"{fields_text(keys)} -> {fields_text(values)}" if keys else fields_text(values)
    ttl = f", expires {variable.ttl_ms} ms after it was written" if variable.expires else ""
    return f"{variable.name}: {variable.kind} of {fields}{ttl}"


def _parts(operator: StatefulProcessorSpec) -> dict[str, str]:
    clock = operator.timers_clock if operator.timed else None
    variables = [_variable_text(variable) for variable in operator.variables]
    return {
        "method": operator.title,
        "group columns": fields_text(operator.keys),
        "state variables": "; ".join(text.split(", expires")[0] for text in variables) or "none",
        "state variables that expire": ", ".join(each.name for each in operator.variables if each.expires) or "none",
        "timers": "none" if clock is None else CLOCK_TEXTS[clock],
        **time_parts(operator.time_column, operator.time_name),
        "output mode": "update" if operator.update else "append",
        "output": fields_text(operator.outputs),
    }


DESCRIPTION = Description(
    title=lambda spec: "Stateful processor",
    lines=_lines,
    parts=_parts,
    store=lambda spec: StoreChoice(
        Pattern.RMW,
        "all state of a key is read, given to your Python and written: one record a key, changed in place",
    ),
    final=lambda spec: "rows as your Python gives them",
    undropped=lambda spec: "state stays until your Python clears it",
)
