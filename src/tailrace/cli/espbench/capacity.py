"""``tailrace espbench capacity``: how much a system takes."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.text import Text

from tailrace.cli.app import err, espbench
from tailrace.cli.console import progress_bar, show_table, work_folder
from tailrace.cli.espbench.options import ConfigFile, Data, QueryKey, Results, Systems, given_config, systems_of
from tailrace.cli.options import OutFile, Work, count_of


@espbench.command(
    epilog="Examples:  tailrace espbench capacity q2 --data data --systems tailrace,flink  ·  "
    "tailrace espbench capacity q3 --data data --from 10k --to 200k --duration 20s --results results"
)
def capacity(
    query: QueryKey,
    data: Data,
    systems: Systems = "tailrace,spark,flink",
    lowest: Annotated[str, typer.Option("--from", help="Messages a second and stream to begin with.")] = "1k",
    highest: Annotated[str, typer.Option("--to", help="The highest rate to try.")] = "100k",
    precision: Annotated[float, typer.Option(min=0.01, help="Of the answer, as a share of it.")] = 0.25,
    duration: Annotated[str, typer.Option(help="How long messages are sent in a trial, as 20s.")] = "20s",
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds at the start that growth leaves out.")] = 8,
    patience: Annotated[float, typer.Option(min=1, help="Seconds without a result that end a trial.")] = 15,
    results: Results = None,
    config: ConfigFile = None,
    out_file: OutFile = None,
    work: Work = None,
) -> None:
    """Find the highest rate at which latency does not grow. The last line of output is a JSON object."""
    from tailrace.lab.espbench.results.files import ResultFolder  # lazy: see cli.app
    from tailrace.lab.espbench.run.capacity import CapacityOptions, capacities  # lazy: see cli.app
    from tailrace.lab.espbench.run.one_run import Conduct  # lazy: see cli.app

    chosen, conduct = given_config(config, None, duration), Conduct(patience, warm_up)
    rates = count_of(lowest, "--from"), count_of(highest, "--to")
    given = CapacityOptions(query, systems_of(systems), *rates, precision, chosen, data.resolve(), conduct)
    found = []
    with work_folder(work) as folder, progress_bar() as progress:
        for one in capacities(given, folder, progress):
            found.append(one.summary())
            if results is not None:
                ResultFolder(results).add_capacity(one.summary())
    for each in found:
        for trial in each["trials"]:
            said = trial["why_not"] or f"sustained, p90 {trial['p90_ms']} ms"
            err.print(Text(f"{each['system']}, {trial['rate']:,}/s: {said}", style="dim"))
    show_table(f"{query}: highest rate sustained", {each["system"]: {"messages/s": each["rate"]} for each in found})
    line = json.dumps({"query": query, "capacities": found}, separators=(",", ":"))
    if out_file is not None:
        out_file.write_text(line + "\n", encoding="utf-8")
    print(line, flush=True)
