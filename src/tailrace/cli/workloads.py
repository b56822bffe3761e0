"""``tailrace demo``, ``run``, ``workloads``, ``report``: queries to look at."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from tailrace.cli.app import app, err, out
from tailrace.cli.console import epoch_watcher, give, show_table, work_folder
from tailrace.cli.options import Commit, Conf, Given, OutFile, Records, Rows, Seed, Work, spark_confs
from tailrace.errors import TailraceError


@app.command(epilog="Examples:  tailrace demo  ·  tailrace demo --rows 50000 --batches 8")
def demo(
    rows: Rows = 150_000,
    auctions: Annotated[int, typer.Option(min=1, help="Different auctions.")] = 20_000,
    batches: Annotated[int, typer.Option(min=10, help="Micro-batches of the stream.")] = 12,
    seed: Seed = 1,
    work: Work = None,
) -> None:
    """Run a windowed query over a stream of bids, then the same stream on Spark's RocksDB store, and show both."""
    from tailrace.lab.demo import Demo, DemoOptions  # lazy: see cli.app

    with work_folder(work) as folder:
        Demo(DemoOptions(rows, auctions, batches, seed), folder, out).run()


@app.command(
    epilog="Examples:  tailrace run bids-window  ·  tailrace run keyed-sums --engine spark-rocksdb --events 10M"
)
def run(
    workload: Annotated[str, typer.Argument(help="Its name; `tailrace workloads` lists them.", show_default=False)],
    engine: Annotated[str, typer.Option(help="tailrace, tailrace-plain, spark-rocksdb or spark-memory.")] = "tailrace",
    events: Annotated[str, typer.Option(help="How many events, as 2000, 500k or 10M.")] = "1M",
    rows: Annotated[str | None, typer.Option(help="Rows of a micro-batch, as 500k; else the workload's own.")] = None,
    commit: Commit = "async",
    conf: Conf = None,
    seed: Seed = 1,
    check: Annotated[bool, typer.Option(help="Compare the answer with one computed without any engine.")] = True,
    given: Given = None,
    out_file: OutFile = None,
    records: Records = None,
    work: Work = None,
) -> None:
    """Run a workload on one engine, check its answer and leave a record. The last line of output is a JSON object."""
    from tailrace.lab import catalog, registry  # lazy: see cli.app
    from tailrace.lab.records.record import Recording  # lazy: see cli.app
    from tailrace.lab.run import RunOptions, result, run_workload  # lazy: see cli.app

    catalog.load()
    confs = spark_confs(conf)
    try:
        chosen = registry.workload(workload)
        registry.query(chosen, engine)
        sizes = (registry.count(events), registry.count(rows) if rows is not None else None)
        options = RunOptions(workload, engine, *sizes, seed, check, chosen.values(given or []), confs, commit)
    except (registry.UnknownNameError, registry.ParameterError) as error:
        raise typer.BadParameter(str(error)) from error
    recording = Recording("run", workload)
    with work_folder(work) as folder, epoch_watcher(engine) as watcher:
        outcome = run_workload(options, folder, watcher)
    record = recording.end(outcome.parameters, outcome.summary, outcome.series, outcome.confs)
    found = result(record)
    columns = ("rows_per_s", "median_ms", "p99_ms", "spread", "state_rows_max", "wall_s")
    shown = {name: {engine: found[name]} for name in columns if found[name] is not None}
    checked = f"{found['rows_checked']:,} rows of the answer checked" if found["answers_equal"] else "not checked"
    show_table(f"{workload}: {found['events']:,} events in {found['epochs']} epochs, {checked}", shown)
    give(found, out_file, record, records)


@app.command(name="workloads", epilog="Examples:  tailrace workloads  ·  tailrace run bids-window --set auctions=500")
def list_workloads() -> None:
    """List the workloads of `tailrace run`, with their parameters and engines."""
    from tailrace.lab import catalog, registry  # lazy: see cli.app

    catalog.load()
    shown: object = None
    for one in registry.workloads():
        out.print(Text.assemble((one.name, "bold"), "  ", one.description))
        if one.parameters is not shown:  # those of a family are shown once
            for name, parameter in one.parameters.items():
                out.print(Text(f"    --set {name}={parameter.default}   {parameter.description}"))
        shown = one.parameters
        engines = ", ".join(one.queries) or "no engine yet"
        out.print(Text(f"    on {engines}; {one.rows:,} rows a micro-batch", style="dim"))


@app.command(epilog="Examples:  tailrace report  ·  tailrace report artifacts/records --out report.html")
def report(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Records and folders of them (else TAILRACE_RECORDS, else artifacts/records)."),
    ] = None,
    out_file: Annotated[Path, typer.Option("--out", help="The page to write.", dir_okay=False)] = Path("report.html"),
) -> None:
    """Make one HTML page of run records: tables and charts, in one file that needs no network."""
    from tailrace.lab.records import record  # lazy: see cli.app

    try:
        from tailrace.lab.report.page import write_report  # lazy: see cli.app
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("plotly"):
            raise
        raise TailraceError("the report's charts need plotly: pip install 'tailrace[lab]'") from error
    records, problems = record.read_all(paths or [record.folder()])
    for problem in problems:
        err.print(Text(f"left out: {problem}", style="yellow"))
    write_report(records, problems, out_file)
    out.print(Text(f"{out_file}: {len(records)} run{'s' if len(records) != 1 else ''}"))


@app.command(epilog="Example:  tailrace version")
def version() -> None:
    """Show the versions of Tailrace, Spark, Java and Python."""
    from tailrace.lab.bench.measure import versions  # lazy: see cli.app

    for name, number in versions().items():
        out.print(f"{name:10} {number}", highlight=False)


@app.command(
    epilog="Examples:  tailrace warm  ·  tailrace warm --into .venv/share/tailrace/kernels, before .venv is packed"
)
def warm(
    into: Annotated[
        Path | None,
        typer.Option(
            help="Compile into this folder instead of the user's cache: an archive for machines of this kind."
        ),
    ] = None,
) -> None:
    """Compile the kernels, so that no first query waits for a compiler: once a version and kind of processor."""
    if into is not None:
        os.environ["TAILRACE_KERNEL_CACHE"] = str(into.absolute())
        os.environ["TAILRACE_KERNEL_ARCHIVE"] = os.devnull  # all of it is compiled anew
    from tailrace.lab.gadget.generate import warm_up as warm_up_gadget  # lazy: see cli.app
    from tailrace.operators.warm_up import warm_up  # lazy: see cli.app

    warm_up()
    warm_up_gadget()
