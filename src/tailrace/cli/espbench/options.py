"""Options that several commands of ESPBench have."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tailrace.cli.options import names_of

if TYPE_CHECKING:
    from tailrace.lab.espbench.config import Config

QueryKey = Annotated[
    Literal["q1", "q2", "q3", "q4", "q4-copies", "q5", "q5-rows", "identity"],
    typer.Argument(
        help="q1 statistics, q2 outliers, q3 errors, q4 machine power (q4-copies: with copies of the database's rows, "
        "while it changes), q5 production times (q5-rows: updates one by one), or identity."
    ),
]

Data = Annotated[
    Path, typer.Option(help="Folder of the files that `tailrace espbench generate` made.", file_okay=False, exists=True)
]

ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="TOML with the original's keys; options win over it.", dir_okay=False)
]

BrokerAddress = Annotated[str | None, typer.Option("--broker", help="host:port of Kafka; else the configuration's.")]

Database = Annotated[
    str | None,
    typer.Option(
        envvar="ESPBENCH_DATABASE",
        help="postgresql://user:password@host:port/name; else the configuration's. Others see command lines.",
    ),
]

Systems = Annotated[str, typer.Option(help="Names with commas: they take turns.")]

Results = Annotated[
    Path | None, typer.Option(help="Folder of results, with the original's columns; runs in it are not made again.")
]


def systems_of(text: str) -> tuple[str, ...]:
    from tailrace.lab.espbench.systems.process import SYSTEMS  # lazy: see cli.app

    return names_of(text, SYSTEMS, "--systems")


def broker_of(given: str | None, config: Config) -> str:
    if address := given or config.kafka_bootstrap_servers:
        return address
    raise typer.BadParameter("give the broker's host:port, or kafka-bootstrap-servers in --config")


def database_of(given: str | None, config: Config) -> str:
    if url := given or config.database:
        return url
    raise typer.BadParameter("give the database's URL, or database in --config", param_hint="--database")


def given_config(path: Path | None, rate: int | None, duration: str | None) -> Config:
    """The configuration of a file, if one is given, with what the options say instead."""
    from tailrace.lab.espbench.config import Config, read  # lazy: see cli.app

    config = Config() if path is None else read(path)
    if rate is not None:
        config = config.at_rate(rate)
    if duration is not None:
        number, unit = _duration(duration)
        config = replace(config, duration=number, duration_time_unit=unit)
    return config


def _duration(text: str) -> tuple[int, str]:
    found = re.fullmatch(r"(\d+)\s*([a-z]+)", text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is no duration; write it as 30s, 5m or 1h", param_hint="--duration")
    return int(found[1]), found[2]
