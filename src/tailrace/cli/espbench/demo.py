"""``tailrace espbench demo``: two queries live, on this machine alone."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tailrace.cli.app import err, espbench
from tailrace.cli.console import show_table, work_folder


@espbench.command(epilog="Examples:  tailrace espbench demo  ·  tailrace espbench demo --rate 5000 --seconds 60")
def demo(
    rate: Annotated[int, typer.Option(min=1, help="Messages a second and stream.")] = 1_000,
    seconds: Annotated[int, typer.Option(min=5, help="How long each query's messages are sent.")] = 25,
) -> None:
    """Sensors over Kafka, downtimes from PostgreSQL: queries 1 and 4 on Tailrace, live, and checked."""
    from tailrace.lab.espbench.run.demo import run_demo  # lazy: see cli.app

    with work_folder(None) as work:
        outcomes = run_demo(rate, seconds, work, err)
    summaries = [outcome.summary() for outcome in outcomes]
    names = (
        "results",
        "correctness",
        "missing",
        "doubled",
        "p50_ms",
        "p90_ms",
        "p99_ms",
        "seen_p90_ms",
        "stale_max_ms",
    )
    show_table("every result checked", {each["query"]: {name: each[name] for name in names} for each in summaries})
    print(json.dumps({"runs": summaries}, separators=(",", ":")), flush=True)
    if not all(each["exactly_once"] for each in summaries):
        raise typer.Exit(1)
