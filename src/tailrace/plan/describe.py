"""Parts of an operator in a user's words, shared by ``explain`` and by the refusal of a changed query.

Different parts must read differently: ``fingerprint.differences`` compares these texts.
"""

from __future__ import annotations

from tailrace.api.duration import format_duration
from tailrace.operators.spec import WHOLE_GROUP, Accumulator, Lift, Merge, OperatorSpec, Output, Result, WindowSpec
from tailrace.types import Field


def field_text(field: Field | None) -> str:
    """
    >>> from tailrace.types import BIGINT
    >>> field_text(Field("auction", BIGINT))
    'auction bigint'
    """
    return "none" if field is None else f"{field.name} {field.type}"


def window_text(window: WindowSpec | None) -> str:
    if window is None:
        return "none"
    if window.lasts is not None:
        return f"{format_duration(window.lasts)} every {format_duration(window.slide)}, as rows bring it"
    text = format_duration(window.size)
    text += ", tumbling" if window.tumbling else f" every {format_duration(window.slide)}"
    return f"{text}, starting at {format_duration(window.offset)}" if window.offset else text


def windows_text(operator: OperatorSpec) -> str:
    """The windows of an operator, or its sessions."""
    if operator.session_gap is not None:
        return f"sessions of rows at most {format_duration(operator.session_gap)} apart"
    return window_text(operator.window)


def accumulator_text(accumulator: Accumulator) -> str:
    if accumulator.lift is Lift.ONE:
        return "count(*)"
    if accumulator.lift is Lift.PRESENT:
        return f"count({accumulator.column})"
    name = {Merge.ADD: "sum", Merge.MOMENTS: "moments"}.get(accumulator.merge, accumulator.merge.value)
    return f"{name}({accumulator.column}{_how(accumulator)})"


def _how(accumulator: Accumulator) -> str:
    if accumulator.lift is Lift.TIMED_PRESENT:
        return " ignoring nulls"
    if accumulator.lift is Lift.DOUBLE and accumulator.merge is Merge.ADD:
        return " as double"
    return ""


def output_text(operator: OperatorSpec, output: Output) -> str:
    """An output without its name: its type, and what it is made of."""
    if output.result is Result.FUNCTION:
        return f"{output.type} from the function"
    if output.result in WHOLE_GROUP:
        argument = "" if output.argument is None else f", {output.argument:g}"
        return f"{output.type} from {output.result.value}({output.column}{argument}) of all rows"
    parts = [accumulator_text(operator.accumulators[index]) for index in output.accumulators]
    made = {Result.QUOTIENT: " / ".join(parts), Result.STDDEV: f"stddev of {parts[0]}"}.get(output.result, parts[0])
    return f"{output.type} from {made}"
