"""The ``tailrace`` command. Results go to standard output, everything else (progress, errors) to standard error.

Exit codes: 0, 1 for an error, 2 for wrong options, 130 after Ctrl-C. Whatever a command started or put in a temporary
folder is gone when it ends, also after Ctrl-C or a SIGTERM.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Literal, NoReturn

import typer
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from tailrace.errors import TailraceError

_LAZY = "Spark and the kernels take seconds to import; --help and wrong options must not wait for them"

app = typer.Typer(
    name="tailrace",
    help="Tailrace: a state engine for PySpark Structured Streaming.",
    epilog="Examples:  tailrace demo  ·  tailrace run bids-window  ·  tailrace bench rmw --batches 5",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
bench = typer.Typer(
    help="Measure Tailrace against Spark's own stores, in turns in one run. The last line of output is a JSON object.",
    epilog="Examples:  tailrace bench rmw  ·  tailrace bench rmw --rows 50000 --engines tailrace,spark-rocksdb",
    no_args_is_help=True,
)
app.add_typer(bench, name="bench")
checkpoint = typer.Typer(
    help="Look into the checkpoint of a query.",
    epilog="Examples:  tailrace checkpoint inspect /data/checkpoints/counts",
    no_args_is_help=True,
)
app.add_typer(checkpoint, name="checkpoint")

out = Console()
err = Console(stderr=True)

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


@app.command(epilog="Examples:  tailrace demo  ·  tailrace demo --rows 50000 --batches 8")
def demo(
    rows: Rows = 150_000,
    auctions: Annotated[int, typer.Option(min=1, help="Different auctions.")] = 20_000,
    batches: Annotated[int, typer.Option(min=10, help="Micro-batches of the stream.")] = 12,
    seed: Seed = 1,
    work: Work = None,
) -> None:
    """A windowed query live over a stream of bids, then the same stream through Spark's RocksDB store, side by side."""
    from tailrace.lab.demo import Demo, DemoOptions  # lazy: see _LAZY

    with _folder(work) as folder:
        Demo(DemoOptions(rows, auctions, batches, seed), folder, out).run()


@bench.command(
    epilog="Examples:  tailrace bench rmw  ·  tailrace bench rmw --batches 5 --engines tailrace,shuffle-floor"
)
def rmw(
    rows: Rows = 500_000,
    keys: Keys = 3_000_000,
    batches: Batches = 20,
    warmup: Warmup = 12,
    turn: Annotated[
        int, typer.Option(min=1, help="Batches an engine takes in a row; of several, the first is not counted.")
    ] = 3,
    engines: Engines = "spark-rocksdb,spark-memory,tailrace,shuffle-floor,transfer-floor",
    seed: Seed = 1,
    check: Check = True,
    commit: Commit = "sync",
    conf: Conf = None,
    out_file: OutFile = None,
    records: Records = None,
    work: Work = None,
) -> None:
    """Sum, count and max per key: Tailrace, Spark's RocksDB and in-memory stores, and two plans without any state."""
    from tailrace.lab.bench_rmw import ALL_ENGINES, RmwOptions, run_rmw  # lazy: see _LAZY
    from tailrace.lab.record import Recording  # lazy: see _LAZY
    from tailrace.lab.record_bench import end_bench  # lazy: see _LAZY

    chosen = _engines(engines, ALL_ENGINES)
    options = RmwOptions(rows, keys, batches, warmup, chosen, seed, check, _confs(conf), commit, turn)
    recording = Recording("bench", "rmw")
    with _folder(work) as folder, _progress() as report:
        result = run_rmw(options, folder, report)
    medians = result["median_ms"]
    _table(
        f"{rows:,} rows a batch over {keys:,} keys: milliseconds a batch",
        {
            "median": medians,
            "spread": result["spread"],
            "rows/s": {n: round(rows / ms * 1e3) for n, ms in medians.items()},
        },
    )
    _give(result, out_file, end_bench(recording, result), records)


@bench.command(
    epilog="Examples:  tailrace bench overhead  ·  tailrace bench overhead --batches 200 --out overhead.json"
)
def overhead(
    rows: Rows = 100,
    keys: Keys = 1_000,
    batches: Batches = 60,
    warmup: Warmup = 20,
    engines: Engines = "spark-rocksdb,tailrace",
    sink: Annotated[
        str, typer.Option(help="Where rows go, for all engines alike: collect, parquet or noop.")
    ] = "collect",
    seed: Seed = 1,
    check: Check = True,
    commit: Commit = "sync",
    conf: Conf = None,
    out_file: OutFile = None,
    records: Records = None,
    work: Work = None,
) -> None:
    """The fixed price of a micro-batch: tiny batches, Tailrace against Spark's RocksDB store."""
    from tailrace.lab.bench_overhead import OverheadOptions, run_overhead  # lazy: see _LAZY
    from tailrace.lab.bench_rmw import ALL_ENGINES  # lazy: see _LAZY
    from tailrace.lab.bench_sinks import SINKS  # lazy: see _LAZY
    from tailrace.lab.record import Recording  # lazy: see _LAZY
    from tailrace.lab.record_bench import end_bench  # lazy: see _LAZY

    chosen = _engines(engines, ALL_ENGINES)
    if sink not in SINKS:
        raise typer.BadParameter(f"no sink is called {sink!r}; there are {', '.join(SINKS)}", param_hint="--sink")
    options = OverheadOptions(rows, keys, batches, warmup, chosen, sink, seed, check, _confs(conf), commit)
    recording = Recording("bench", "overhead")
    with _folder(work) as folder, _progress() as report:
        result = run_overhead(options, folder, report)
    _table(f"{rows:,} rows a batch: milliseconds a batch", {"p50": result["p50_ms"], "p99": result["p99_ms"]})
    _table("where they go (medians)", result["durations_ms"], by_row=True)
    if result["tailrace_durations_ms"]:
        _table("inside Tailrace (medians)", {"tailrace": result["tailrace_durations_ms"]}, by_row=True)
    _give(result, out_file, end_bench(recording, result), records)


@bench.command(
    epilog="Examples:  tailrace bench nexmark --queries q5,q7,q11  ·  tailrace bench nexmark --rows 500k --turns 6"
)
def nexmark(
    queries: Annotated[str | None, typer.Option(help="Which queries, as q5,q7-session; else those of FlowKV.")] = None,
    rows: Annotated[str, typer.Option(help="Events of a micro-batch, as 250k; more for light queries.")] = "250k",
    turns: Annotated[int, typer.Option(min=1, help="Turns of each engine that are measured.")] = 4,
    turn: Annotated[
        int, typer.Option(min=1, help="Batches an engine takes in a row; of several, the first is not counted.")
    ] = 3,
    warmup: Warmup = 5,
    engines: Engines = "spark-rocksdb,tailrace",
    sink: Annotated[str, typer.Option(help="Where rows go, for all engines alike: noop, collect or parquet.")] = "noop",
    seed: Seed = 1,
    check: Annotated[bool, typer.Option(help="Compare every engine's rows with the oracle's at the end.")] = True,
    given: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter of the workloads, as rate=1000. May be repeated.")
    ] = None,
    commit: Commit = "sync",
    conf: Conf = None,
    out_file: OutFile = None,
    records: Records = None,
    work: Work = None,
) -> None:
    """NEXMark's queries: Tailrace and Spark's RocksDB (and in-memory) store, in turns, query after query.

    About twelve minutes on two cores with the default queries, sizes and engines. Windows and sessions' gaps are as
    long as a turn unless --set says otherwise; people and auctions are active for two hours of event time.
    """
    from tailrace.lab import bench_nexmark as nexmark_bench  # lazy: see _LAZY
    from tailrace.lab import registry, workloads  # lazy: see _LAZY
    from tailrace.lab.bench_sinks import SINKS  # lazy: see _LAZY
    from tailrace.lab.record import Recording  # lazy: see _LAZY
    from tailrace.lab.record_bench import end_bench  # lazy: see _LAZY

    assert workloads.ALL
    chosen = _engines(engines, nexmark_bench.ENGINES)
    if sink not in SINKS:
        raise typer.BadParameter(f"no sink is called {sink!r}; there are {', '.join(SINKS)}", param_hint="--sink")
    asked = nexmark_bench.QUERIES
    if queries is not None:
        asked = tuple(dict.fromkeys(name.strip() for name in queries.split(",")))
    try:
        nexmark_bench.check_queries(asked, chosen)
        options = nexmark_bench.NexmarkOptions(
            asked,
            registry.count(rows),
            turns,
            turn,
            warmup,
            chosen,
            sink,
            seed,
            check,
            tuple(given or ()),
            _confs(conf),
            commit,
        )
        options.values_of(asked[0])
    except (registry.UnknownNameError, registry.ParameterError) as error:
        raise typer.BadParameter(str(error)) from error
    recording = Recording("bench", "nexmark")
    with _folder(work) as folder, _progress() as report:
        result = nexmark_bench.run_nexmark(options, folder, report)
    rates = result["throughput"]
    columns = {engine: {query: of[engine] for query, of in rates.items()} for engine in chosen}
    _table(f"{options.rows:,} events a batch or more: events a second", {**columns, "ratio": result["ratios"]})
    _give(result, out_file, end_bench(recording, result), records)


@bench.command(
    epilog="Examples:  tailrace bench stores  ·  tailrace bench stores --sweeps ratio --rounds 9  ·  tailrace bench "
    "stores --window 20 --rate 1k --batch 1k --memory 50k --rounds 1"
)
def stores(
    sweeps: Annotated[
        str, typer.Option(help="Which sweeps: shares read ahead, space amplifications, window lengths.")
    ] = "ratio,amplification,window",
    window: Annotated[int, typer.Option(min=1, help="Gap of sessions and base of window lengths, in seconds.")] = 100,
    rate: Annotated[str, typer.Option(help="Events of a second of event time, as 10k.")] = "10k",
    batch: Annotated[str, typer.Option(help="Events of an epoch, as 10k.")] = "10k",
    memory: Annotated[str, typer.Option(help="Bytes that a store may hold in memory, as 4M.")] = "4M",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds measured, after those that fill the state.")] = 5,
    seed: Seed = 1,
    out_file: OutFile = None,
    records: Records = None,
    work: Work = None,
) -> None:
    """The state stores by themselves, under what NEXMark's bids ask of them: what each setting costs and brings.

    About four minutes on two cores. State is about ten times the memory given; every answer is checked.
    """
    from tailrace.lab import bench_stores as stores_bench  # lazy: see _LAZY
    from tailrace.lab import registry  # lazy: see _LAZY
    from tailrace.lab.record import Recording  # lazy: see _LAZY
    from tailrace.lab.record_bench import end_bench  # lazy: see _LAZY

    asked = tuple(dict.fromkeys(name.strip() for name in sweeps.split(",")))
    unknown = [name for name in asked if name not in stores_bench.SWEEPS]
    if unknown:
        known = ", ".join(stores_bench.SWEEPS)
        raise typer.BadParameter(f"no sweep is called {unknown[0]!r}; there are {known}", param_hint="--sweeps")
    try:
        sizes = (registry.count(rate), registry.count(batch))
        options = stores_bench.StoreOptions(
            asked, *sizes, window, memory_bytes=registry.count(memory), rounds=rounds, seed=seed
        )
    except registry.ParameterError as error:
        raise typer.BadParameter(str(error)) from error
    recording = Recording("bench", "stores")
    with _folder(work) as folder, _progress() as report:
        result = stores_bench.run_stores(options, folder, report)
    for title, columns in stores_bench.tables(result["sweeps"]).items():
        _table(title, columns)
    _give(result, out_file, end_bench(recording, result), records)


@bench.command(
    epilog="Examples:  tailrace bench commit  ·  tailrace bench commit --queries lr4 --batches 100 --trigger 3  ·  "
    "tailrace bench commit --store shaped --targets sync,async,async-free-store"
)
def commit(
    queries: Annotated[str, typer.Option(help="Which queries.")] = "lr2,lr4,cm1,cm2",
    targets: Annotated[
        str | None, typer.Option(help="What to compare, separated by commas; else all of it.", show_default=False)
    ] = None,
    batches: Batches = 40,
    warmup: Warmup = 25,
    rate: Annotated[int, typer.Option(min=1, help="Records of a second; the paper has 1500 and 2500.")] = 1_500,
    store: Annotated[
        Literal["proxy", "shaped"],
        typer.Option(help="One shaping proxy before an S3 server for all, or, without Spark's, a slow folder."),
    ] = "proxy",
    latency: Annotated[float, typer.Option(min=0, help="Milliseconds that the store waits with each request.")] = 50,
    bandwidth: Annotated[float, typer.Option(min=0, help="Megabytes that the store takes a second; 0: any.")] = 20,
    deadline: Annotated[float, typer.Option(min=0, help="Of the target buffered, in seconds.")] = 3,
    trigger: Annotated[float, typer.Option(min=0, help="A round takes so many seconds at least; the paper: 3.")] = 0,
    turn: Annotated[
        int, typer.Option(min=1, help="Batches in a row, without a pause; of several, the first is not counted.")
    ] = 1,
    sink: Annotated[str, typer.Option(help="Where rows go, for all engines alike: noop, collect or parquet.")] = "noop",
    seed: Seed = 1,
    check: Annotated[bool, typer.Option(help="Compare every target's rows with the oracle's at the end.")] = True,
    given: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter of the workloads, as jobs=500. May be repeated.")
    ] = None,
    conf: Conf = None,
    out_file: OutFile = None,
    records: Records = None,
    work: Work = None,
) -> None:
    """What a commit to a slow store costs: Tailrace's modes and Spark's RocksDB store on Linear Road and others.

    Batches of three seconds of traffic, in turns. Under 25 minutes on two cores with all queries and targets.
    """
    from tailrace.lab import bench_commit, registry, workloads  # lazy: see _LAZY
    from tailrace.lab.bench_sinks import SINKS  # lazy: see _LAZY
    from tailrace.lab.commit_targets import TARGETS  # lazy: see _LAZY
    from tailrace.lab.record import Recording  # lazy: see _LAZY
    from tailrace.lab.record_bench import end_bench  # lazy: see _LAZY

    assert workloads.ALL
    if sink not in SINKS:
        raise typer.BadParameter(f"no sink is called {sink!r}; there are {', '.join(SINKS)}", param_hint="--sink")
    able = [name for name, target in TARGETS.items() if store == "proxy" or not target.remote_logs]
    asked, chosen = (
        tuple(dict.fromkeys(name.strip() for name in text.split(",")))
        for text in (queries, ",".join(able) if targets is None else targets)
    )
    options = bench_commit.CommitOptions(
        asked,
        chosen,
        batches,
        warmup,
        rate,
        store=store,
        latency_ms=latency,
        mb_per_s=bandwidth,
        deadline_s=deadline,
        trigger_s=trigger,
        turn=turn,
        sink=sink,
        seed=seed,
        check=check,
        given=tuple(given or ()),
        confs=_confs(conf),
    )
    try:
        bench_commit.check_names(asked, chosen, store)
        options.values_of(asked[0])
    except (registry.UnknownNameError, registry.ParameterError) as error:
        raise typer.BadParameter(str(error)) from error
    recording = Recording("bench", "commit")
    with _folder(work) as folder, _progress() as report:
        result = bench_commit.run_commit(options, folder, report)
    for query in asked:
        columns = {
            "p50 ms": result["query_p50_ms"][query],
            "p95 ms": result["query_p95_ms"][query],
            "p99 ms": result["query_p99_ms"][query],
            "kB/s": result["throughput_kb_s"][query],
            "commit, waited for": result["commit_on_path_ms"][query],
            "behind": {name: ms for name, ms in result["commit_behind_ms"][query].items() if ms is not None},
        }
        _table(f"{query}, {rate:,} records a second", columns)
    _give(result, out_file, end_bench(recording, result), records)


@app.command(
    epilog="Examples:  tailrace run bids-window  ·  tailrace run keyed-sums --engine spark-rocksdb --events 10M"
)
def run(
    workload: Annotated[str, typer.Argument(help="Its name; `tailrace workloads` lists them.", show_default=False)],
    engine: Annotated[str, typer.Option(help="tailrace, spark-rocksdb or spark-memory.")] = "tailrace",
    events: Annotated[str, typer.Option(help="How many events, as 2000, 500k or 10M.")] = "1M",
    rows: Annotated[str | None, typer.Option(help="Rows of a micro-batch, as 500k; else the workload's own.")] = None,
    seed: Seed = 1,
    check: Annotated[bool, typer.Option(help="Compare the answer with one computed without any engine.")] = True,
    given: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter of the workload, as name=value. May be repeated.")
    ] = None,
    commit: Commit = "sync",
    conf: Conf = None,
    out_file: OutFile = None,
    records: Records = None,
    work: Work = None,
) -> None:
    """Run a workload on one engine, check its answer and leave a record. The last line of output is a JSON object."""
    from tailrace.lab import registry, workloads  # lazy: see _LAZY
    from tailrace.lab.record import Recording  # lazy: see _LAZY
    from tailrace.lab.run import RunOptions, result, run_workload  # lazy: see _LAZY

    assert workloads.ALL
    confs = _confs(conf)
    try:
        chosen = registry.workload(workload)
        registry.query(chosen, engine)
        sizes = (registry.count(events), registry.count(rows) if rows is not None else None)
        options = RunOptions(workload, engine, *sizes, seed, check, chosen.values(given or []), confs, commit)
    except (registry.UnknownNameError, registry.ParameterError) as error:
        raise typer.BadParameter(str(error)) from error
    recording = Recording("run", workload)
    with _folder(work) as folder, _watcher(engine) as watcher:
        outcome = run_workload(options, folder, watcher)
    record = recording.end(outcome.parameters, outcome.summary, outcome.series, outcome.confs)
    found = result(record)
    columns = ("rows_per_s", "median_ms", "p99_ms", "spread", "state_rows_max", "wall_s")
    shown = {name: {engine: found[name]} for name in columns if found[name] is not None}
    checked = f"{found['rows_checked']:,} rows of the answer checked" if found["answers_equal"] else "not checked"
    _table(f"{workload}: {found['events']:,} events in {found['epochs']} epochs, {checked}", shown)
    _give(found, out_file, record, records)


@checkpoint.command(
    epilog="Examples:  tailrace checkpoint inspect /data/checkpoints/counts  ·  tailrace checkpoint inspect ck --state "
    "s3://bucket/counts --json"
)
def inspect(
    location: Annotated[
        str, typer.Argument(help="The query's checkpointLocation: a path, s3://, gs:// or az://.", show_default=False)
    ],
    state: Annotated[
        str | None, typer.Option(help="Its stateLocation, where that is not beside the checkpoint.", show_default=False)
    ] = None,
    local: Annotated[
        str | None, typer.Option(help="Its localLocation, where that was given, on this machine.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Epochs, sizes, acknowledgements and what a restart would do. Changes nothing; the query may be running."""
    from tailrace.commit.inspect import inspect as look  # lazy: see _LAZY
    from tailrace.commit.spark_folder import spark_epochs  # lazy: see _LAZY
    from tailrace.env.local_copy import copies_of  # lazy: see _LAZY
    from tailrace.env.local_store import LocalStore  # lazy: see _LAZY
    from tailrace.env.objects import is_far, open_store  # lazy: see _LAZY

    spark = open_store(location)
    if isinstance(spark, LocalStore) and not spark.root.is_dir():
        raise typer.BadParameter(f"there is no folder {location}", param_hint="LOCATION")
    store = open_store(state or f"{location.rstrip('/')}/tailrace")
    copies = copies_of(store, local, sweep=False) if is_far(store) else None
    found = look(store, spark_epochs(spark, "commits"), spark_epochs(spark, "offsets"), copies)
    if as_json:
        print(json.dumps(found.to_json()))
        return
    table = Table(title=f"The log at {found.state}", title_justify="left")
    for name, justify in (("entry", "right"), ("what", "left"), ("run", "left"), ("objects", "right"), ("MB", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for entry in found.to_json()["log"]:
        durable = entry["kind"] == "durable"
        what = f"epoch {entry['epoch']}, try {entry['try']}: durable" if durable else entry["kind"]
        if entry["kind"] == "fence":
            what = f"start on {entry['host']}, {entry['at']}"
        sizes = (f"{entry['objects']}", f"{entry['bytes'] / 1e6:,.1f}") if durable else ("", "")
        table.add_row(str(entry["number"]), what, entry.get("run", ""), *sizes)
    out.print(table)
    table = Table(title="Epochs, and who has acknowledged what of them", title_justify="left")
    for name in ("epoch", "Spark", "saved here, MB", "in the store, MB", "durable by entry"):
        table.add_column(name, justify="left" if name == "Spark" else "right")
    for each in found.epochs:
        by_spark = "committed" if each.committed else "planned" if each.planned else ""
        megabytes = ("" if size is None else f"{size / 1e6:,.3f}" for size in (each.saved, each.uploaded))
        table.add_row(str(each.epoch), by_spark, *megabytes, "" if each.entry is None else str(each.entry))
    out.print(table)
    newest = {log: max(epochs, default=None) for log, epochs in found.to_json()["spark"].items()}
    out.print(f"Spark: newest commit {newest['commits']}, newest offset {newest['offsets']}")
    out.print(
        f"Objects: {len(found.objects)}, {sum(found.objects.values()) / 1e6:,.1f} MB; {len(found.orphans)} that no "
        f"durable epoch lists; {len(found.missing)} missing"
    )
    out.print(Text(found.verdict(), style="bold"))


@app.command(name="workloads", epilog="Examples:  tailrace workloads  ·  tailrace run bids-window --set auctions=500")
def list_workloads() -> None:
    """The workloads that `tailrace run` knows, with their parameters and engines."""
    from tailrace.lab import registry, workloads  # lazy: see _LAZY

    assert workloads.ALL
    told: object = None
    for one in registry.workloads():
        out.print(Text.assemble((one.name, "bold"), "  ", one.description))
        if one.parameters is not told:  # those of a family are told once
            for name, parameter in one.parameters.items():
                out.print(Text(f"    --set {name}={parameter.default}   {parameter.description}"))
        told = one.parameters
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
    """Make one HTML page of run records: tables and charts, all in one file that needs no network."""
    from tailrace.lab import record  # lazy: see _LAZY

    try:
        from tailrace.lab.report import write_report  # lazy: see _LAZY
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("plotly"):
            raise
        raise TailraceError("the report's charts need plotly: pip install 'tailrace[lab]'") from error
    records, problems = record.read_all(paths or [record.folder()])
    for problem in problems:
        err.print(Text(f"left out: {problem}", style="yellow"))
    write_report(records, problems, out_file)
    out.print(Text(f"{out_file}: {len(records)} run{'s' if len(records) != 1 else ''}"))


@app.command()
def version() -> None:
    """The version of Tailrace and of what it runs on."""
    from tailrace.lab.measure import versions  # lazy: see _LAZY

    for name, number in versions().items():
        out.print(f"{name:10} {number}", highlight=False)


@app.command(hidden=True)
def warm() -> None:
    """Compiles the kernels into their cache, so that the first query need not wait. Done once, by ``make setup``."""
    from tailrace.operators.warm_up import warm_up  # lazy: see _LAZY

    warm_up()


def _engines(text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in known:
            raise typer.BadParameter(
                f"no engine is called {name!r}; there are {', '.join(known)}", param_hint="--engines"
            )
    if not names or len(set(names)) < len(names):
        raise typer.BadParameter(f"name each engine once; there are {', '.join(known)}", param_hint="--engines")
    return names


def _confs(given: list[str] | None) -> dict[str, str]:
    confs = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise typer.BadParameter(f"{text!r} is not of the form spark.some.name=value", param_hint="--conf")
        confs[name] = value
    return confs


@contextmanager
def _folder(work: Path | None) -> Iterator[Path]:
    if work is not None:
        if work.exists() and any(work.iterdir()):
            raise TailraceError(
                f"{work} is not empty: give --work a new folder, so that nothing of yours is overwritten"
            )
        work.mkdir(parents=True, exist_ok=True)
        yield work.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="tailrace-lab-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _progress() -> Iterator[Any]:
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=err,
    )
    with bar:
        task = bar.add_task("starting", total=None)

        def report(what: str, done: int, steps: int) -> None:
            bar.update(task, description=what, completed=done, total=steps)

        yield report


@contextmanager
def _watcher(engine: str) -> Iterator[Any]:
    """As `_progress`, with the newest epoch's rate and state."""
    with _progress() as report:

        class Watcher:
            def stage(self, what: str, done: int, steps: int) -> None:
                report(what, done, steps)

            def epoch(self, epoch: Any, done: int, steps: int) -> None:
                state = "" if epoch.state_rows is None else f", {epoch.state_rows:,} state rows"
                report(f"{engine}: epoch {epoch.epoch}, {epoch.rows_per_s:,.0f} rows/s{state}", done, steps)

        yield Watcher()


def _table(title: str, columns: dict[str, dict[str, float]], by_row: bool = False) -> None:
    """A table of named columns of named numbers; with ``by_row`` the longest rows come first."""
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in columns:
        table.add_column(name, justify="right")
    names = list(dict.fromkeys(name for column in columns.values() for name in column))
    if by_row:
        names.sort(key=lambda name: -max(column.get(name, 0) for column in columns.values()))
    for name in names:
        table.add_row(name, *(f"{column[name]:,}" if name in column else "" for column in columns.values()))
    out.print(table)


def _give(result: dict[str, Any], path: Path | None, record: Any, records: Path | None) -> None:
    from tailrace.lab.record import folder, write  # lazy: see _LAZY

    line = json.dumps(result, separators=(",", ":"))
    if path is not None:
        path.write_text(line + "\n", encoding="utf-8")
    try:
        err.print(Text(f"record: {write(record, folder(records))}", style="dim"))
    finally:  # minutes of measuring are not lost for want of a folder
        print(line, flush=True)  # not through rich, which would fold it


def _terminated(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)  # unwinds, so that sessions are stopped and folders removed


def main() -> None:
    signal.signal(signal.SIGTERM, _terminated)
    try:
        app()
    except TailraceError as error:
        err.print(Panel(Text(str(error)), title=type(error).__name__, title_align="left", border_style="red"))
        sys.exit(1)


if __name__ == "__main__":
    main()
