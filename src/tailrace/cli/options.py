"""Options that several commands have, and their checks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer

Rows = Annotated[int, typer.Option(min=1, help="Rows of a micro-batch.")]

Seed = Annotated[int, typer.Option(min=0, help="The same seed makes the same events.")]

OutFile = Annotated[Path | None, typer.Option("--out", help="Also write the JSON object here.", dir_okay=False)]

Work = Annotated[Path | None, typer.Option(help="Work in this new folder and keep it, instead of a temporary one.")]

Records = Annotated[
    Path | None,
    typer.Option(help="Folder of the run's record (else TAILRACE_RECORDS, else artifacts/records).", file_okay=False),
]

Commit = Annotated[
    Literal["sync", "async-checkpoint", "async"],
    typer.Option(help="When Tailrace's epochs are durable: its option commit."),
]

Conf = Annotated[list[str] | None, typer.Option(help="A Spark conf for all engines, as name=value. May be repeated.")]


Given = Annotated[
    list[str] | None, typer.Option("--set", help="A parameter of the workload, as name=value. May be repeated.")
]


def names_of(text: str, known: Iterable[str], option: str) -> tuple[str, ...]:
    """Names separated by commas, each once. ``known``: which there are; any may be named where it is empty."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    choice = f"; choose from {', '.join(known)}" if known else ""
    for name in names:
        if known and name not in known:
            raise typer.BadParameter(f"there is no {name!r}{choice}", param_hint=option)
    if not names or len(set(names)) < len(names):
        raise typer.BadParameter(f"name at least one, and each once{choice}", param_hint=option)
    return names


def count_of(text: str, option: str) -> int:
    """A count as people write it: 2000, 500k or 10M."""
    from tailrace.lab.registry import ParameterError, count  # lazy: see cli.app

    try:
        return count(text)
    except ParameterError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def spark_confs(given: list[str] | None) -> dict[str, str]:
    confs = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise typer.BadParameter(f"{text!r} is not of the form spark.some.name=value", param_hint="--conf")
        confs[name] = value
    return confs
