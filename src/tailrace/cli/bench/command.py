"""A command of ``tailrace bench`` from the class of its options (``lab/bench/options.py``).

Every bench also takes ``--out``, ``--records`` and ``--work``, prints tables, leaves a record, and ends its output with
one JSON object.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer

from tailrace.cli.app import bench
from tailrace.cli.console import give, progress_bar, show_table, work_folder
from tailrace.cli.options import OutFile, Records, Work, count_of, names_of, spark_confs
from tailrace.lab.bench.options import Flag

T = TypeVar("T")
Tables = dict[str, dict[str, dict[str, float]]]
"""Title to columns of named numbers."""


@dataclass(frozen=True)
class Measurement:
    """``run``: from the options, a folder and a progress report to the result. ``tables``: what is shown of it."""

    run: Callable[[Any, Path, Any], dict[str, Any]]
    tables: Callable[[dict[str, Any]], Tables]
    name: str | None = None
    """The bench's, where it is not the command's."""


def bench_command(options: type[T], *examples: str) -> Callable[[Callable[[T], Measurement]], None]:
    """Registers a command. The function that is decorated looks at the options, raising where a name is unknown, before
    anything is started; its docstring is the command's help."""

    def register(plan: Callable[[T], Measurement]) -> None:
        flags = _flags(options)

        def command(out_file: Path | None, records: Path | None, work: Path | None, **given: Any) -> None:
            asked = _options(options, given)
            measure(plan, asked, plan.__name__, out_file, records, work)

        parameters = [_parameter(one, annotation) for one, annotation in flags]
        for name, annotation in (("out_file", OutFile), ("records", Records), ("work", Work)):
            parameters.append(_keyword(name, annotation, None))
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        command.__doc__ = plan.__doc__
        bench.command(plan.__name__, epilog=f"Examples:  {'  ·  '.join(examples)}")(command)

    return register


def measure(
    plan: Callable[[T], Measurement],
    options: T,
    name: str,
    out_file: Path | None,
    records: Path | None,
    work: Path | None,
) -> None:
    """Runs a bench, shows its tables, and gives its record and its last line."""
    from tailrace.lab import catalog, registry  # lazy: see cli.app
    from tailrace.lab.records.bench_record import end_bench  # lazy: see cli.app
    from tailrace.lab.records.record import Recording  # lazy: see cli.app

    catalog.load()
    try:
        measurement = plan(options)
    except (registry.UnknownNameError, registry.ParameterError) as error:
        raise typer.BadParameter(str(error)) from error
    recording = Recording("bench", measurement.name or name)
    with work_folder(work) as folder, progress_bar() as report:
        result = measurement.run(options, folder, report)
    for title, columns in measurement.tables(result).items():
        show_table(title, columns)
    give(result, out_file, end_bench(recording, result), records)


def _flags(options: type) -> list[tuple[Field[Any], Any]]:
    """The fields that are on the command line, with their annotations: those of the bench itself first."""
    hints = get_type_hints(options, include_extras=True)
    own = list(options.__annotations__)
    ordered = sorted(fields(options), key=lambda one: own.index(one.name) if one.name in own else len(own))
    return [(one, hints[one.name]) for one in ordered if _flag(hints[one.name]) is not None]


def _flag(annotation: Any) -> Flag | None:
    return next((one for one in get_args(annotation)[1:] if isinstance(one, Flag)), None)


def _default(one: Field[Any]) -> Any:
    if one.default_factory is not MISSING:
        return one.default_factory()
    return one.default


def _parameter(one: Field[Any], annotation: Any) -> inspect.Parameter:
    kind, flag, default = get_args(annotation)[0], _flag(annotation), _default(one)
    assert flag is not None
    shown: bool | str = True
    if _repeated(flag):
        kind, default, shown = list[str] | None, None, False
    elif get_origin(kind) is tuple:
        kind, default = str, ",".join(default)
        shown = bool(default)
    elif flag.size:
        kind, default = str, _size(default)
    number = kind in (int, float)
    names = (flag.name,) if flag.name else ()
    option = typer.Option(*names, help=flag.help, min=flag.least if number else None, show_default=shown)
    return _keyword(one.name, Annotated[kind, option], default)


def _repeated(flag: Flag) -> bool:
    return flag.name in ("--conf", "--set")


def _size(number: int) -> str:
    for unit, factor in (("M", 10**6), ("k", 10**3)):
        if number % factor == 0:
            return f"{number // factor}{unit}"
    return str(number)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _options(options: type[T], given: Mapping[str, Any]) -> T:
    """What was written on the command line, as the fields have it."""
    values = {}
    for one, annotation in _flags(options):
        flag, value = _flag(annotation), given[one.name]
        assert flag is not None
        hint = flag.name or f"--{one.name.replace('_', '-')}"
        if flag.name == "--conf":
            value = spark_confs(value)
        elif flag.name == "--set":
            value = tuple(value or ())
        elif get_origin(get_args(annotation)[0]) is tuple:
            known = getattr(options, f"known_{one.name}", ())
            value = names_of(value, known, hint) if value or _default(one) else ()
        elif flag.size:
            value = count_of(value, hint)
        values[one.name] = value
    return options(**values)
