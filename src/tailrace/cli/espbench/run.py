"""``tailrace espbench run``: a query on systems in turns, each run with servers, sender and verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from tailrace.cli.app import err, espbench
from tailrace.cli.console import progress_bar, show_table, work_folder
from tailrace.cli.espbench.options import ConfigFile, Data, QueryKey, Results, Systems, given_config, systems_of
from tailrace.cli.options import OutFile, Work, names_of

Rate = Annotated[int, typer.Option(min=1, help="Messages a second and stream.")]
Duration = Annotated[str, typer.Option(help="How long messages are sent, as 30s or 5m.")]
Runs = Annotated[int, typer.Option(min=1, help="Runs of each system.")]
Kills = Annotated[int, typer.Option(min=0, help="So often the system is killed while messages are sent.")]
WarmUp = Annotated[float, typer.Option(min=0, help="Seconds at the start that latencies leave out.")]
Patience = Annotated[float, typer.Option(min=1, help="Seconds without a result that end a run.")]
_COLUMNS = (
    *("correctness", "missing", "doubled", "p50_ms", "p90_ms", "p99_ms", "seen_p50_ms", "seen_p90_ms"),
    *("growth", "results", "drained_s"),
)
LowMf03 = Annotated[int, typer.Option(help="q4's limit; 7992 for a real file from its start.")]


@espbench.command(
    epilog="Examples:  tailrace espbench run q1 --data data --rate 1000 --duration 30s --systems spark  ·  "
    "tailrace espbench run q3 --data data --rate 10000 --runs 3 --kills 2"
)
def run(
    query: QueryKey,
    data: Data,
    systems: Systems = "tailrace,spark,flink",
    rate: Rate = 1_000,
    duration: Duration = "5m",
    runs: Runs = 1,
    kills: Kills = 0,
    warm_up: WarmUp = 10,
    patience: Patience = 30,
    low_mf03: LowMf03 = 8_105,
    results: Results = None,
    config: ConfigFile = None,
    out_file: OutFile = None,
    work: Work = None,
) -> None:
    """Run a query and check every result. The last line of output is a JSON object."""
    from tailrace.lab.espbench.run.one_run import Conduct  # lazy: see cli.app

    conduct = Conduct(patience, warm_up, kills, low_mf03)
    chosen = given_config(config, None, duration)
    _run(([query], [rate], systems_of(systems), runs, chosen, data.resolve(), conduct), results, out_file, work)


@espbench.command(
    epilog="Examples:  tailrace espbench recovery q1 --data data --rate 1000 --duration 1m  ·  "
    "tailrace espbench recovery q2 --data data --systems tailrace,flink --kills 3"
)
def recovery(
    query: QueryKey,
    data: Data,
    kills: Annotated[int, typer.Option(min=1, help="So often the system is killed, at even distances.")] = 2,
    systems: Systems = "tailrace,spark,flink",
    rate: Rate = 1_000,
    duration: Duration = "90s",
    runs: Runs = 1,
    patience: Patience = 60,
    low_mf03: LowMf03 = 8_105,
    results: Results = None,
    config: ConfigFile = None,
    out_file: OutFile = None,
    work: Work = None,
) -> None:
    """Kill the system in the middle of a run: how long it is silent and behind, what is lost or doubled."""
    from tailrace.lab.espbench.run.one_run import Conduct  # lazy: see cli.app

    conduct, chosen = Conduct(patience, 10, kills, low_mf03), given_config(config, None, duration)
    _run(([query], [rate], systems_of(systems), runs, chosen, data.resolve(), conduct), results, out_file, work)


@espbench.command(
    name="all",
    epilog="Examples:  tailrace espbench all --data data --results results --rates 1000,10000 --runs 3  ·  "
    "tailrace espbench all --data data --results results --queries q1,q3 --duration 1m",
)
def run_all(
    data: Data,
    results: Annotated[Path, typer.Option(help="Folder of results; runs that it has are not made again.")],
    queries: Annotated[str, typer.Option(help="Queries with commas.")] = "q1,q2,q3,q4,q4-copies,q5,q5-rows",
    rates: Annotated[str, typer.Option(help="Messages a second and stream, with commas.")] = "1000,10000",
    systems: Systems = "tailrace,spark,flink",
    duration: Duration = "5m",
    runs: Runs = 3,
    kills: Kills = 0,
    warm_up: WarmUp = 10,
    patience: Patience = 30,
    low_mf03: LowMf03 = 8_105,
    config: ConfigFile = None,
    out_file: OutFile = None,
    work: Work = None,
) -> None:
    """Run the whole matrix; after an interruption, what is left of it. The last line of output is a JSON object."""
    from tailrace.lab.espbench.names import QUERIES  # lazy: see cli.app
    from tailrace.lab.espbench.run.one_run import Conduct  # lazy: see cli.app

    chosen = given_config(config, None, duration)
    asked = [int(each) for each in names_of(rates, (), "--rates") if each.isdigit() and int(each)]
    if len(asked) < len(rates.split(",")):
        raise typer.BadParameter(f"{rates!r} is no list of numbers above 0", param_hint="--rates")
    names, conduct = names_of(queries, QUERIES, "--queries"), Conduct(patience, warm_up, kills, low_mf03)
    _run((names, asked, systems_of(systems), runs, chosen, data.resolve(), conduct), results, out_file, work)


def _shown(summary: dict[str, Any]) -> dict[str, Any]:
    """What a table shows of a run; kills as one column each."""
    of_kills = {
        f"kill {number}, {name}": kill[key]
        for number, kill in enumerate(summary["kills"], 1)
        for name, key in (("silent s", "silent_s"), ("behind s", "behind_s"))
    }
    return {name: summary[name] for name in _COLUMNS} | of_kills


def _run(given: tuple[Any, ...], results: Path | None, out_file: Path | None, work: Path | None) -> None:
    from tailrace.lab.espbench.results.files import ResultFolder  # lazy: see cli.app
    from tailrace.lab.espbench.run.series import Failed, SeriesOptions, run_series  # lazy: see cli.app

    kept = None if results is None else ResultFolder(results)
    summaries, failed = [], []
    with work_folder(work) as folder, progress_bar() as progress:
        for outcome in run_series(SeriesOptions(*given), kept, folder, progress):
            if isinstance(outcome, Failed):
                failed.append({"system": outcome.system, "query": outcome.query, "why": outcome.why})
                err.print(Text(outcome.why, style="red"))
                continue
            summary = outcome.summary()
            summaries.append(summary)
            for fault in summary["faults"]:
                err.print(Text(f"{summary['system']}, run {summary['run']}: {fault}", style="red"))
    shown = summaries if kept is None else kept.summaries()
    for query, rate in dict.fromkeys((each["query"], each["rate"]) for each in shown):
        of_it = [each for each in shown if (each["query"], each["rate"]) == (query, rate)]
        table = {f"{each['system']} {each['run']}": _shown(each) for each in of_it}
        show_table(f"{query} at {rate:,} messages a second", table)
    line = json.dumps({"runs": summaries, "failed": failed}, separators=(",", ":"))
    if out_file is not None:
        out_file.write_text(line + "\n", encoding="utf-8")
    print(line, flush=True)
    if failed:
        raise typer.Exit(1)
