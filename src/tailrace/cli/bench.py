"""``tailrace bench``: measurements against Spark's own stores."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from tailrace.cli.app import bench
from tailrace.cli.console import give, progress_bar, show_table, work_folder
from tailrace.cli.options import (
    Batches,
    Check,
    Commit,
    Conf,
    Engines,
    Keys,
    OutFile,
    Records,
    Rows,
    Seed,
    Warmup,
    Work,
    engine_names,
    spark_confs,
)


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
    commit: Commit = "async",
    conf: Conf = None,
    out_file: OutFile = None,
    records: Records = None,
    work: Work = None,
) -> None:
    """Sum, count and max per key: Tailrace, Spark's RocksDB and in-memory stores, and two plans without any state."""
    from tailrace.lab.bench.rmw import ALL_ENGINES, RmwOptions, run_rmw  # lazy: see LAZY
    from tailrace.lab.records.bench_record import end_bench  # lazy: see LAZY
    from tailrace.lab.records.record import Recording  # lazy: see LAZY

    chosen = engine_names(engines, ALL_ENGINES)
    options = RmwOptions(rows, keys, batches, warmup, chosen, seed, check, spark_confs(conf), commit, turn)
    recording = Recording("bench", "rmw")
    with work_folder(work) as folder, progress_bar() as report:
        result = run_rmw(options, folder, report)
    medians = result["median_ms"]
    show_table(
        f"{rows:,} rows a batch over {keys:,} keys: milliseconds a batch",
        {
            "median": medians,
            "spread": result["spread"],
            "rows/s": {n: round(rows / ms * 1e3) for n, ms in medians.items()},
        },
    )
    give(result, out_file, end_bench(recording, result), records)


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
    commit: Commit = "async",
    conf: Conf = None,
    out_file: OutFile = None,
    records: Records = None,
    work: Work = None,
) -> None:
    """The fixed price of a micro-batch: tiny batches, Tailrace against Spark's RocksDB store."""
    from tailrace.lab.bench.overhead import OverheadOptions, run_overhead  # lazy: see LAZY
    from tailrace.lab.bench.rmw import ALL_ENGINES  # lazy: see LAZY
    from tailrace.lab.bench.sinks import SINKS  # lazy: see LAZY
    from tailrace.lab.records.bench_record import end_bench  # lazy: see LAZY
    from tailrace.lab.records.record import Recording  # lazy: see LAZY

    chosen = engine_names(engines, ALL_ENGINES)
    if sink not in SINKS:
        raise typer.BadParameter(f"no sink is called {sink!r}; there are {', '.join(SINKS)}", param_hint="--sink")
    options = OverheadOptions(rows, keys, batches, warmup, chosen, sink, seed, check, spark_confs(conf), commit)
    recording = Recording("bench", "overhead")
    with work_folder(work) as folder, progress_bar() as report:
        result = run_overhead(options, folder, report)
    show_table(f"{rows:,} rows a batch: milliseconds a batch", {"p50": result["p50_ms"], "p99": result["p99_ms"]})
    show_table("where they go (medians)", result["durations_ms"], by_row=True)
    if result["tailrace_durations_ms"]:
        show_table("inside Tailrace (medians)", {"tailrace": result["tailrace_durations_ms"]}, by_row=True)
    give(result, out_file, end_bench(recording, result), records)


@bench.command(epilog="Examples:  tailrace bench start  ·  tailrace bench start --starts 21 --engines tailrace")
def start(
    starts: Annotated[
        int, typer.Option(min=1, help="Starts of a new query that are measured, each with a restart.")
    ] = 9,
    warmup: Annotated[int, typer.Option(min=0, help="Starts before that, which are not counted.")] = 3,
    rows: Rows = 1_000,
    keys: Keys = 1_000,
    engines: Engines = "spark-rocksdb,tailrace",
    seed: Seed = 1,
    commit: Commit = "async",
    conf: Conf = None,
    out_file: OutFile = None,
    records: Records = None,
    work: Work = None,
) -> None:
    """The time from start() until your function has the first rows, for a new query and for a restarted one."""
    from tailrace.lab.bench.start import ENGINES, StartOptions, run_start  # lazy: see LAZY
    from tailrace.lab.records.bench_record import end_bench  # lazy: see LAZY
    from tailrace.lab.records.record import Recording  # lazy: see LAZY

    chosen = engine_names(engines, ENGINES)
    options = StartOptions(starts, warmup, rows, keys, chosen, seed, spark_confs(conf), commit)
    recording = Recording("bench", "start")
    with work_folder(work) as folder, progress_bar() as report:
        result = run_start(options, folder, report)
    show_table(
        "milliseconds from start() to the first row (medians)",
        {"new query": result["median_ms"], "restarted": result["restart_median_ms"]},
    )
    give(result, out_file, end_bench(recording, result), records)


@bench.command(epilog="Examples:  tailrace bench memory  ·  tailrace bench memory --keys 200000 --batches 6")
def memory(
    keys: Keys = 1_000_000,
    rows: Rows = 100_000,
    batches: Batches = 12,
    warmup: Warmup = 4,
    seed: Seed = 1,
    check: Check = True,
    commit: Commit = "async",
    out_file: OutFile = None,
    records: Records = None,
    work: Work = None,
) -> None:
    """State of ten times its memory: what a batch costs, whether that grows with the state, what the servers hold."""
    from tailrace.lab.bench.memory import MemoryOptions, run_memory  # lazy: see LAZY
    from tailrace.lab.records.bench_record import end_bench  # lazy: see LAZY
    from tailrace.lab.records.record import Recording  # lazy: see LAZY

    recording = Recording("bench", "memory")
    with work_folder(work) as folder, progress_bar() as report:
        result = run_memory(MemoryOptions(keys, rows, batches, warmup, seed, check, commit), folder, report)
    show_table(
        f"{rows:,} rows a batch: milliseconds a batch, and bytes of memory",
        {
            "median": result["median_ms"],
            "budget": result["memory_bytes"],
            "server's peak": result["server_peak_bytes"],
        },
    )
    give(result, out_file, end_bench(recording, result), records)


@bench.command(
    epilog="Examples:  tailrace bench nexmark --queries q5,q7,q11  ·  tailrace bench nexmark --rows 250k --turns 6"
)
def nexmark(
    queries: Annotated[str | None, typer.Option(help="Which queries, as q5,q7-session; else those of FlowKV.")] = None,
    rows: Annotated[str, typer.Option(help="Events of a micro-batch, as 750k; more for light queries.")] = "750k",
    turns: Annotated[int, typer.Option(min=1, help="Turns of each engine that are measured.")] = 3,
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
    commit: Commit = "async",
    conf: Conf = None,
    out_file: OutFile = None,
    records: Records = None,
    work: Work = None,
) -> None:
    """NEXMark's queries: Tailrace and Spark's RocksDB (and in-memory) store, in turns, query after query.

    About 22 minutes on two cores with the default queries, sizes and engines. Windows and sessions' gaps are as
    long as a turn unless --set says otherwise; people and auctions are active for two hours of event time.
    """
    from tailrace.lab import catalog, registry  # lazy: see LAZY
    from tailrace.lab.bench import nexmark as nexmark_bench  # lazy: see LAZY
    from tailrace.lab.bench.sinks import SINKS  # lazy: see LAZY
    from tailrace.lab.records.bench_record import end_bench  # lazy: see LAZY
    from tailrace.lab.records.record import Recording  # lazy: see LAZY

    catalog.load()
    chosen = engine_names(engines, nexmark_bench.ENGINES)
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
            spark_confs(conf),
            commit,
        )
        options.values_of(asked[0])
    except (registry.UnknownNameError, registry.ParameterError) as error:
        raise typer.BadParameter(str(error)) from error
    recording = Recording("bench", "nexmark")
    with work_folder(work) as folder, progress_bar() as report:
        result = nexmark_bench.run_nexmark(options, folder, report)
    rates = result["throughput"]
    columns = {engine: {query: of[engine] for query, of in rates.items()} for engine in chosen}
    show_table(f"{options.rows:,} events a batch or more: events a second", {**columns, "ratio": result["ratios"]})
    give(result, out_file, end_bench(recording, result), records)


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
    from tailrace.lab import registry  # lazy: see LAZY
    from tailrace.lab.bench.stores import bench as stores_bench  # lazy: see LAZY
    from tailrace.lab.records.bench_record import end_bench  # lazy: see LAZY
    from tailrace.lab.records.record import Recording  # lazy: see LAZY

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
    with work_folder(work) as folder, progress_bar() as report:
        result = stores_bench.run_stores(options, folder, report)
    for title, columns in stores_bench.tables(result["sweeps"]).items():
        show_table(title, columns)
    give(result, out_file, end_bench(recording, result), records)


@bench.command(
    epilog="Examples:  tailrace bench commit  ·  tailrace bench commit --queries lr4 --batches 100 --trigger 3  ·  "
    "tailrace bench commit --store shaped --targets sync,async,async-free-store"
)
def commit(
    queries: Annotated[str, typer.Option(help="Which queries.")] = "lr2,lr4,cm1,cm2",
    targets: Annotated[
        str | None, typer.Option(help="What to compare, separated by commas; else all of it.", show_default=False)
    ] = None,
    batches: Batches = 36,
    warmup: Warmup = 20,
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

    Batches of three seconds of traffic, in turns. About 37 minutes on two cores with all queries and targets.
    """
    from tailrace.lab import catalog, registry  # lazy: see LAZY
    from tailrace.lab.bench.commit import bench as bench_commit  # lazy: see LAZY
    from tailrace.lab.bench.commit.targets import TARGETS  # lazy: see LAZY
    from tailrace.lab.bench.sinks import SINKS  # lazy: see LAZY
    from tailrace.lab.records.bench_record import end_bench  # lazy: see LAZY
    from tailrace.lab.records.record import Recording  # lazy: see LAZY

    catalog.load()
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
        confs=spark_confs(conf),
    )
    try:
        bench_commit.check_names(asked, chosen, store)
        options.values_of(asked[0])
    except (registry.UnknownNameError, registry.ParameterError) as error:
        raise typer.BadParameter(str(error)) from error
    recording = Recording("bench", "commit")
    with work_folder(work) as folder, progress_bar() as report:
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
        show_table(f"{query}, {rate:,} records a second", columns)
    give(result, out_file, end_bench(recording, result), records)
