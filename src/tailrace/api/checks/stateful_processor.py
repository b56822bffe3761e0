"""Checks what a user asks of a per-key function of PySpark's."""

from __future__ import annotations

from tailrace.api.columns import CANNOT_BE_STATE, check_kept, check_names, resolve
from tailrace.api.processors import ProcessorCode, StatefulProcessing, StateVariable, TimeMode
from tailrace.api.relations import OutputMode, StateTtl, Watermark
from tailrace.api.windows import AnyWindow
from tailrace.errors import AnalysisError
from tailrace.types import Field

_ADVICE = "select what you need first, or turn it into a string or binary"


def output_mode_of(given: object, title: str) -> OutputMode:
    modes = OutputMode.APPEND, OutputMode.UPDATE
    found = [mode for mode in modes if isinstance(given, str) and mode.value == given.strip().lower()]
    if not found:
        raise AnalysisError(f"{title}: outputMode must be 'append' or 'update', but is {given!r}")
    return found[0]


def time_mode_of(given: object, title: str) -> TimeMode:
    found = [mode for mode in TimeMode if isinstance(given, str) and mode.value.lower() == given.strip().lower()]
    if not found:
        raise AnalysisError(f"{title}: timeMode must be 'None', 'ProcessingTime' or 'EventTime', but is {given!r}")
    return found[0]


def stateful_processing(
    source: object,
    schema: tuple[Field, ...],
    watermark: Watermark | None,
    keys: tuple[Field, ...],
    code: ProcessorCode,
    mode: OutputMode,
    time_mode: TimeMode,
    *,
    timeouts: bool = False,
    time_name: str | None = None,
    seen: tuple[Field, ...] | None = None,
) -> StatefulProcessing:
    """The relation of a per-key function, whoever asks for it. ``seen``: the columns that it sees; None: all."""
    title = code.title
    if not keys:
        raise AnalysisError(f"{title} needs group columns: .groupBy('user')")
    check_kept(schema, f"{title}: column", f"is not supported: {_ADVICE}")
    if not code.outputs:
        raise AnalysisError(f"{title}: the output has no column")
    check_names([field.name for field in code.outputs])
    for field in code.outputs:
        if (field.type.element or field.type).kind is None:
            raise AnalysisError(f"{title}: output column {field.name!r} is a {field.type}, which is not supported")
    _check_variables(code.variables, time_mode, title)
    if time_mode is TimeMode.EVENT and watermark is None:
        raise AnalysisError(
            f"{title}: timers in event time go by the watermark, and this stream has none: call "
            f".withWatermark('ts', '10 seconds') first, or use the time mode 'ProcessingTime'"
        )
    return StatefulProcessing(
        source=source,
        schema=schema,
        watermark=watermark,
        keys=keys,
        code=code,
        mode=mode,
        time_mode=time_mode,
        timeouts=timeouts,
        time_name=_time_name(time_name, code.outputs, watermark, title),
        seen=schema if seen is None else seen,
    )


def _check_variables(variables: tuple[StateVariable, ...], time_mode: TimeMode, title: str) -> None:
    for variable in variables:
        where = f"{title}: state {variable.name!r}"
        if not variable.fields:
            raise AnalysisError(f"{where} has no field")
        check_kept(variable.fields, f"{where}: field", CANNOT_BE_STATE)
        if variable.ttl_ms is None:
            continue
        if variable.ttl_ms <= 0:
            raise AnalysisError(f"{where}: ttlDurationMs must be greater than 0, but is {variable.ttl_ms}")
        if time_mode is not TimeMode.PROCESSING:
            raise AnalysisError(
                f"{where} has a time-to-live, which is in processing time: use timeMode='ProcessingTime', or remove it"
            )


def _time_name(name: str | None, outputs: tuple[Field, ...], watermark: Watermark | None, title: str) -> str | None:
    if not name:
        return None
    if watermark is None:
        raise AnalysisError(
            f"{title}: eventTimeColumnName names the event time of the output, and this stream has none: call "
            f".withWatermark('ts', '10 seconds') first, or remove it"
        )
    column = resolve(name, outputs, f"{title}: eventTimeColumnName, in the schema of the output")
    if not column.type.is_time:
        raise AnalysisError(f"{title}: eventTimeColumnName {column.name!r} is a {column.type}, and must be a timestamp")
    return column.name


def check_grouping(window: AnyWindow | None, store: str | None, ttl: StateTtl | None, title: str) -> None:
    if window is not None:
        raise AnalysisError(
            f"{title} sees all rows of a key as they come, and says itself when something ends: remove the window from "
            f"groupBy, or group by a column that you compute first"
        )
    if store not in (None, "RMW"):
        raise AnalysisError(f"{title} keeps one record a key, which is read and written: remove .store({store!r})")
    if ttl is not None:
        raise AnalysisError(
            f"{title} has a time-to-live for each state variable, where it asks for it (ttlDurationMs): remove "
            f".withStateTtl(...)"
        )
