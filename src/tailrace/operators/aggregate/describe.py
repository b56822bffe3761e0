"""An aggregation in a user's words, for ``explain`` and for the refusal of a changed query."""

from __future__ import annotations

from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput, Output
from tailrace.operators.aggregate.functions.descriptor import DESCRIPTORS
from tailrace.operators.aggregate.functions.states import KINDS
from tailrace.operators.aggregate.spec import CHANGE_TYPE, AggregateSpec
from tailrace.operators.aggregate.window_forms import choose_store, form_of
from tailrace.operators.kind import Description
from tailrace.operators.pattern import Pattern
from tailrace.operators.planning.texts import field_text, fields_text
from tailrace.operators.planning.ttl import ttl_clock_text, ttl_lines
from tailrace.operators.planning.windows import timeless_text, undropped_text
from tailrace.operators.windows.any_window import window_text
from tailrace.operators.windows.window_kind import WindowKind
from tailrace.state.layout import Merge


def group_lines(operator: AggregateSpec) -> list[str]:
    """What rows are grouped by."""
    lines = [f"group by {fields_text(operator.keys, 'nothing: one group')}"]
    if operator.window is not None:
        time = None if operator.time_column is None else operator.time_column.name
        lines += [*operator.window.lines(operator.window_name, time), *form_of(operator.window).lines(operator)]
    return lines


def aggregate_lines(operator: AggregateSpec) -> list[str]:
    outputs = [f"output {output.name}: {output_text(operator, output)}" for output in operator.outputs]
    if operator.changelog:
        outputs.append(f"output {CHANGE_TYPE}: string, what a row says; sessions that others absorbed are deleted")
    lines = [*group_lines(operator), *outputs, *_function_lines(operator), *ttl_lines(operator.ttl)]
    if operator.complete:
        lines.append(
            "all groups are read in every epoch, and no watermark drops any: an epoch costs what the state does"
        )
    return lines


def _mode_text(operator: AggregateSpec) -> str:
    return "complete" if operator.complete else "update" if operator.emit_changed else "append"


def _function_lines(operator: AggregateSpec) -> list[str]:
    """What of a window a user's function sees at once."""
    if operator.function is None:
        return []
    if operator.own_windows:
        return ["a call of the function gets many windows, each of them whole"]
    if operator.keys:
        return ["a call of the function gets keys of one window that one server has, each of them whole (perKey)"]
    return ["a call of the function gets a whole window, on one server"]


def aggregate_parts(operator: AggregateSpec) -> dict[str, str]:
    return {
        "group columns": fields_text(operator.keys),
        "window": window_text(operator.window),
        "event time column": field_text(operator.time_column),
        "output mode": _mode_text(operator),
        "store": operator.pattern.value,
        "time-to-live": ttl_clock_text(operator.ttl),
    }


def aggregate_outputs(operator: AggregateSpec) -> dict[str, str]:
    return {output.name: output_text(operator, output) for output in operator.outputs}


def aggregate_kept(operator: AggregateSpec) -> str:
    if operator.pattern is not Pattern.RMW:
        return f"all rows ({fields_text(operator.rows)})"
    return ", ".join(f"{accumulator_text(one)} {one.type}" for one in operator.accumulators if one.part == 0)


def accumulator_text(accumulator: Accumulator) -> str:
    if accumulator.input is AccumulatorInput.ONE:
        return "count(*)"
    if accumulator.state is not None:
        return KINDS[accumulator.state.name].text.format(", ".join(accumulator.state.columns))
    if accumulator.input is AccumulatorInput.STAMP:
        return "time of the last update"
    if accumulator.input is AccumulatorInput.PRESENT:
        return f"count({accumulator.column})"
    name = {Merge.ADD: "sum", Merge.MOMENTS: "moments"}.get(accumulator.merge, accumulator.merge.value)
    return f"{name}({accumulator.column}{_how(accumulator)})"


def _how(accumulator: Accumulator) -> str:
    if accumulator.input is AccumulatorInput.TIMED_PRESENT:
        return " ignoring nulls"
    if accumulator.input is AccumulatorInput.DOUBLE and accumulator.merge is Merge.ADD:
        return " as double"
    return ""


def output_text(operator: AggregateSpec, output: Output) -> str:
    """An output without its name: its type, and what it is made of."""
    if output.function is None:
        return f"{output.type} from the function"
    descriptor = DESCRIPTORS[output.function]
    if descriptor.holistic:
        arguments = "".join(f", {one:g}" for one in output.arguments if isinstance(one, int | float))
        return f"{output.type} from {output.function}({', '.join(output.columns)}{arguments}) of all rows"
    kept = [operator.accumulators[index] for index in output.accumulators]
    parts = [accumulator_text(one) for one in kept]
    if kept[0].state is not None:
        return f"{output.type} from {output.function} of {parts[0]}"
    return f"{output.type} from {descriptor.made_of(parts)}"


def _progress_name(operator: AggregateSpec) -> str:
    if operator.window_kind is WindowKind.GLOBAL:
        return "rolling aggregate"
    return f"{operator.window_kind} window aggregate"


DESCRIPTION = Description(
    title=lambda spec: "Aggregate",
    progress_name=_progress_name,
    lines=aggregate_lines,
    parts=aggregate_parts,
    store=choose_store,
    outputs=aggregate_outputs,
    kept=aggregate_kept,
    final=lambda spec: "the rows of windows that closed",
    undropped=lambda spec: undropped_text(spec.window, spec.ttl),
    timeless=lambda spec: "output mode complete" if spec.complete else timeless_text(spec.window),
)
