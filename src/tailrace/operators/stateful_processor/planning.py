"""A per-key function of PySpark's to the operator that a state server runs for it."""

from __future__ import annotations

from tailrace.api.processors import StatefulProcessing, StateVariable, TimeMode
from tailrace.api.relations import OutputMode
from tailrace.errors import AnalysisError
from tailrace.operators.planning.user_functions import packed
from tailrace.operators.spec import VALUES_MAX
from tailrace.operators.stateful_processor.spec import DUE, StatefulProcessorSpec, VariableSpec, state_fields
from tailrace.operators.timers.ttl import Clock


def plan_processing(
    stream: StatefulProcessing, output_mode: OutputMode, shards: int, name: str
) -> StatefulProcessorSpec:
    time = None if stream.watermark is None else stream.watermark.column
    variables = tuple(_variable(each) for each in stream.code.variables)
    timed = stream.time_mode is not TimeMode.NONE
    state = state_fields(variables, timed)
    others = tuple(field for field in stream.schema if field not in stream.keys and field != time)
    spec = StatefulProcessorSpec(
        name=name,
        keys=stream.keys,
        rows=(*([time] if time is not None and time not in stream.keys else []), *others),
        state=state,
        outputs=stream.code.outputs,
        time_column=time,
        watermarked=stream.watermark is not None,
        shards=shards,
        function=packed(stream.code.calls),
        timers=DUE if any(field.name == DUE for field in state) else None,
        timers_clock=_clock(stream.time_mode, state != ()),
        time_name=stream.time_name,
        title=stream.code.title,
        columns=stream.seen,
        variables=variables,
        timed=timed,
        timeouts=stream.timeouts,
        filters_late=stream.time_mode is TimeMode.EVENT,
        update=output_mode is OutputMode.UPDATE,
    )
    for what, width in (("a row", len(spec.rows)), ("the state of a key", len(spec.hidden) + len(spec.state))):
        if len(spec.keys) + width > VALUES_MAX:
            raise AnalysisError(
                f"{spec.title}: {what} has {len(spec.keys) + width} columns with the group columns and our own, and at "
                f"most {VALUES_MAX} are possible: select those that you need first, or use fewer "
                f"state variables"
            )
    for variable in variables:
        if len(variable.packed_fields) > VALUES_MAX:
            raise AnalysisError(
                f"{spec.title}: state {variable.name!r} has {len(variable.fields)} fields, and at most "
                f"{VALUES_MAX - 1} are possible: use several state variables"
            )
    return spec


def _variable(given: StateVariable) -> VariableSpec:
    return VariableSpec(given.name, given.kind.value, given.fields, len(given.key), given.ttl_ms)


def _clock(mode: TimeMode, due: bool) -> Clock | None:
    return (
        {TimeMode.NONE: None, TimeMode.PROCESSING: Clock.PROCESSING, TimeMode.EVENT: Clock.EVENT}[mode] if due else None
    )
