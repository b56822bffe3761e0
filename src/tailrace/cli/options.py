"""Options that several commands have, and their checks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Rows = Annotated[int, typer.Option(min=1, help="Rows of a micro-batch.")]

Keys = Annotated[int, typer.Option(min=1, help="Different keys.")]

Batches = Annotated[int, typer.Option(min=1, help="Micro-batches measured.")]

Warmup = Annotated[int, typer.Option(min=0, help="Micro-batches before that, which are not counted.")]

Engines = Annotated[str, typer.Option(help="Which engines take part, separated by commas.")]

Seed = Annotated[int, typer.Option(min=0, help="The same seed makes the same events.")]

OutFile = Annotated[Path | None, typer.Option("--out", help="Also write the JSON object here.", dir_okay=False)]

Work = Annotated[Path | None, typer.Option(help="Work in this new folder and keep it, instead of a temporary one.")]

Check = Annotated[bool, typer.Option(help="Compare every engine's answer for every key at the end.")]

Records = Annotated[
    Path | None,
    typer.Option(help="Folder of the run's record (else TAILRACE_RECORDS, else artifacts/records).", file_okay=False),
]

Commit = Annotated[
    Literal["sync", "async-checkpoint", "async"],
    typer.Option(help="When Tailrace's epochs are durable: its option commit."),
]

Conf = Annotated[list[str] | None, typer.Option(help="A Spark conf for all engines, as name=value. May be repeated.")]


def engine_names(text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in known:
            raise typer.BadParameter(
                f"no engine is called {name!r}; there are {', '.join(known)}", param_hint="--engines"
            )
    if not names or len(set(names)) < len(names):
        raise typer.BadParameter(f"name each engine once; there are {', '.join(known)}", param_hint="--engines")
    return names


def spark_confs(given: list[str] | None) -> dict[str, str]:
    confs = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise typer.BadParameter(f"{text!r} is not of the form spark.some.name=value", param_hint="--conf")
        confs[name] = value
    return confs
