"""Checks where a user wants the rows to go that come too late."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tailrace.api.checks.writer import check_format
from tailrace.api.definition import ForeachBatch, Format, Sink
from tailrace.errors import AnalysisError

_NO_PLACE = ("memory", "noop")


def late_sink(
    func: Callable[..., object] | None, format_: str | None, path: str | None, options: Mapping[str, object]
) -> Sink:
    if func is not None:
        if format_ is not None or path is not None or options:
            raise AnalysisError("lateRows takes a function, or a format and a path, not both: remove one")
        if not callable(func):
            raise AnalysisError(f"lateRows takes a function of (DataFrame, epoch), but got {func!r}")
        return ForeachBatch(func)
    if format_ is None and path is None:
        raise AnalysisError(
            "lateRows needs a place for the rows: .lateRows(function), which gets (DataFrame, epoch), or "
            ".lateRows(format='parquet', path='/data/late')"
        )
    name = "parquet" if format_ is None else format_
    if not isinstance(name, str) or not name.strip():
        raise AnalysisError(f"lateRows: format takes a format's name, for example 'parquet', but got {name!r}")
    name = name.strip().lower()
    if name in _NO_PLACE:
        raise AnalysisError(f"lateRows: format {name!r} keeps nothing: use .lateRows(function), or a file format")
    check_format(name, "lateRows")
    if name != "console" and not path:
        raise AnalysisError(f"lateRows: format {name!r} needs a path: .lateRows(format={name!r}, path='/data/late')")
    given = tuple(sorted((key, _text(value)) for key, value in options.items() if value is not None))
    return Format(name, path, given)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
