"""Checks what a user asks of a function of rows and state."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tailrace.api.checks.ttl import is_processing
from tailrace.api.columns import CANNOT_BE_STATE, check_kept, check_names, resolve
from tailrace.api.relations import Process, StateTtl, Watermark
from tailrace.api.windows import AnyWindow
from tailrace.errors import AnalysisError
from tailrace.types import Field


def keyed_process(
    source: object,
    schema: tuple[Field, ...],
    watermark: Watermark | None,
    keys: tuple[Field, ...],
    window: AnyWindow | None,
    store: str | None,
    ttl: StateTtl | None,
    func: Callable[..., object],
    outputs: tuple[Field, ...],
    state: tuple[Field, ...],
    *,
    timers: str | None,
    time_mode: str,
    columns: Sequence[str] | None,
    time_name: str | None,
) -> Process:
    if not callable(func):
        raise AnalysisError(f"process takes a function, but got {func!r} ({type(func).__name__})")
    if window is not None:
        raise AnalysisError(
            "process sees all rows of a key as they come, and the function itself says when something ends: remove the "
            "window from groupBy, or use applyInWindow"
        )
    if store not in (None, "RMW"):
        raise AnalysisError(f"process keeps one record a key, which is read and written: remove .store({store!r})")
    _check_outputs(outputs)
    _check_state(state, keys)
    read = _columns(columns, schema, keys, watermark)
    if not read and not keys and watermark is None:
        raise AnalysisError("process: columns is empty, and a table without columns has no rows: name one")
    processing = is_processing(time_mode, "process")
    return Process(
        source=source,
        schema=schema,
        watermark=watermark,
        keys=keys,
        function=func,
        outputs=outputs,
        state=state,
        columns=read,
        timers=_timers(timers, state, processing, watermark),
        timers_processing=processing,
        time_name=_time_name(time_name, outputs, watermark),
        state_ttl=ttl,
    )


def _check_outputs(outputs: tuple[Field, ...]) -> None:
    if not outputs:
        raise AnalysisError("process: the schema has no column")
    check_names([field.name for field in outputs])
    for field in outputs:
        if (field.type.element or field.type).kind is None:
            raise AnalysisError(f"process: output column {field.name!r} is a {field.type}, which is not supported")


def _check_state(state: tuple[Field, ...], keys: tuple[Field, ...]) -> None:
    if not state:
        raise AnalysisError("process: the state has no column: state='count bigint, last timestamp'")
    names = [field.name.lower() for field in (*keys, *state)]
    twice = [field.name for field in state if names.count(field.name.lower()) > 1]
    if twice:
        raise AnalysisError(
            f"process: two columns of the state would be called {twice[0]!r}: it has the group columns "
            f"({', '.join(key.name for key in keys) or 'none'}) beside those that you name: name each once"
        )
    check_kept(state, "process: state column", CANNOT_BE_STATE)


def _columns(
    columns: Sequence[str] | None, schema: tuple[Field, ...], keys: tuple[Field, ...], watermark: Watermark | None
) -> tuple[Field, ...]:
    """What is read beside the keys and the event time, in the order in which it was named."""
    if isinstance(columns, str):
        raise AnalysisError(f"process: columns takes a list of names, but got {columns!r}: columns=[{columns!r}]")
    wanted = [field.name for field in schema] if columns is None else list(columns)
    found = dict.fromkeys(resolve(name, schema, "process: columns") for name in wanted)
    read = tuple(field for field in found if field not in keys and (watermark is None or field != watermark.column))
    check_kept(read, "process: column", "is not supported: leave it out with columns=[...], or cast it first")
    return read


def _timers(name: str | None, state: tuple[Field, ...], processing: bool, watermark: Watermark | None) -> str | None:
    if name is None:
        return None
    column = resolve(name, state, "process: timers, in the state")
    if not column.type.is_time:
        raise AnalysisError(
            f"process: timers {column.name!r} is a {column.type}, and must be a timestamp column of the state: when it "
            f"has passed, the key is due"
        )
    if not processing and watermark is None:
        raise AnalysisError(
            "process: timers in event time go by the watermark, and this stream has none: call "
            ".withWatermark('ts', '10 seconds') first, or use timeMode='processingTime'"
        )
    return column.name


def _time_name(name: str | None, outputs: tuple[Field, ...], watermark: Watermark | None) -> str | None:
    if name is None:
        return None
    if watermark is None:
        raise AnalysisError(
            "process: eventTime names the event time of the output, and this stream has none: call "
            ".withWatermark('ts', '10 seconds') first, or remove it"
        )
    column = resolve(name, outputs, "process: eventTime, in the schema of the output")
    if not column.type.is_time:
        raise AnalysisError(f"process: eventTime {column.name!r} is a {column.type}, and must be a timestamp")
    return column.name
