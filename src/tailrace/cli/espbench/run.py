"""``tailrace espbench run``: a query on systems in turns, each run with servers, sender and verdict."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from tailrace.cli.app import err, espbench
from tailrace.cli.console import progress_bar, show_table, work_folder
from tailrace.cli.espbench.options import ConfigFile, Data, QueryKey, given_config
from tailrace.cli.options import OutFile, Work, names_of


@espbench.command(
    epilog="Examples:  tailrace espbench run q1 --data data --rate 1000 --duration 30s --systems spark  ·  "
    "tailrace espbench run q3 --data data --rate 10000 --runs 3 --kills 2"
)
def run(
    query: QueryKey,
    data: Data,
    systems: Annotated[str, typer.Option(help="Names with commas: they take turns.")] = "tailrace,spark",
    rate: Annotated[int, typer.Option(min=1, help="Messages a second and stream.")] = 1_000,
    duration: Annotated[str, typer.Option(help="How long messages are sent, as 30s or 5m.")] = "5m",
    runs: Annotated[int, typer.Option(min=1, help="Runs of each system.")] = 1,
    kills: Annotated[int, typer.Option(min=0, help="So often the system is killed while messages are sent.")] = 0,
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds at the start that latencies leave out.")] = 10,
    patience: Annotated[float, typer.Option(min=1, help="Seconds without a result that end a run.")] = 30,
    row_by_row: Annotated[bool, typer.Option("--row-by-row", help="q5 with an update each record.")] = False,
    low_mf03: Annotated[int, typer.Option(help="q4's limit; 7992 for a real file from its start.")] = 8_105,
    config: ConfigFile = None,
    out_file: OutFile = None,
    work: Work = None,
) -> None:
    """Run a query and check every result. The last line of output is a JSON object."""
    from tailrace.lab.espbench.names import QUERIES  # lazy: see LAZY
    from tailrace.lab.espbench.run.one_run import RunOptions, one_run  # lazy: see LAZY
    from tailrace.lab.espbench.run.servers import servers  # lazy: see LAZY
    from tailrace.lab.espbench.systems.process import SYSTEMS  # lazy: see LAZY

    names = names_of(systems, SYSTEMS, "--systems")
    chosen, asked = given_config(config, rate, duration), QUERIES[query]
    settings = {"set_wise": not row_by_row, "low_mf03": low_mf03}
    outcomes = []
    with ExitStack() as stack:
        folder = stack.enter_context(work_folder(work))
        progress = stack.enter_context(progress_bar())
        progress("servers start", 0, 1)
        places = stack.enter_context(servers(chosen, query in ("q4", "q5")))
        number = chosen.benchmark_run
        for _ in range(runs):
            for system in names:  # in turns, so that what changes on the machine changes for all
                of_run = replace(chosen, benchmark_run=number)
                options = RunOptions(system, asked, of_run, data.resolve(), patience, warm_up, kills, settings)
                outcomes.append(one_run(options, places, Path(folder) / f"{system}-{number}", progress))
                number += 1
    columns = ("correctness", "missing", "doubled", "p50_ms", "p90_ms", "p99_ms", "results", "drained_s")
    summaries = [outcome.summary() for outcome in outcomes]
    shown = {f"{each['system']} {each['run']}": {name: each[name] for name in columns} for each in summaries}
    show_table(f"{query} at {rate:,} messages a second", shown)
    for each in summaries:
        for fault in each["faults"]:
            err.print(Text(f"{each['system']}, run {each['run']}: {fault}", style="red"))
    line = json.dumps({"query": query, "rate": rate, "runs": summaries}, separators=(",", ":"))
    if out_file is not None:
        out_file.write_text(line + "\n", encoding="utf-8")
    print(line, flush=True)
