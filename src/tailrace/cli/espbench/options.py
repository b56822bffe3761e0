"""Options that several commands of ESPBench have."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from tailrace.lab.espbench.config import Config

QueryKey = Annotated[
    Literal["q1", "q2", "q3", "q4", "q5", "identity"],
    typer.Argument(help="q1 statistics, q2 outliers, q3 errors, q4 machine power, q5 production times, or identity."),
]

Data = Annotated[
    Path, typer.Option(help="Folder of the files that `tailrace espbench generate` made.", file_okay=False, exists=True)
]

ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="TOML with the original's keys; options win over it.", dir_okay=False)
]


def given_config(path: Path | None, rate: int | None, duration: str | None) -> Config:
    """The configuration of a file, if one is given, with what the options say instead."""
    from tailrace.lab.espbench.config import Config, read  # lazy: see cli.app

    config = Config() if path is None else read(path)
    if rate is not None:
        config = replace(config, sending_interval=max(1_000_000_000 // rate, 1), sending_interval_time_unit="ns")
    if duration is not None:
        number, unit = _duration(duration)
        config = replace(config, duration=number, duration_time_unit=unit)
    return config


def _duration(text: str) -> tuple[int, str]:
    found = re.fullmatch(r"(\d+)\s*([a-z]+)", text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is no duration; write it as 30s, 5m or 1h", param_hint="--duration")
    return int(found[1]), found[2]
