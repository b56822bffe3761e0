"""``tailrace bench``: measurements against Spark's own stores."""

from __future__ import annotations

from typing import Any

from tailrace.cli.bench.command import Measurement, Tables, bench_command
from tailrace.lab.bench.options import (
    CommitOptions,
    MemoryOptions,
    NexmarkOptions,
    OverheadOptions,
    PortOptions,
    ProcessorsOptions,
    RmwOptions,
    StartOptions,
    StoreOptions,
)


@bench_command(
    RmwOptions, "tailrace bench rmw", "tailrace bench rmw --rows 50000 --keys 200000 --engines tailrace,shuffle-floor"
)
def rmw(options: RmwOptions) -> Measurement:
    """Measure sum, count and max by key, beside Spark's RocksDB and in-memory stores and two plans without state."""
    from tailrace.lab.bench.rmw import run_rmw  # lazy: see cli.app

    def tables(result: dict[str, Any]) -> Tables:
        medians = result["median_ms"]
        rates = {name: round(options.rows / ms * 1e3) for name, ms in medians.items()}
        title = f"{options.rows:,} rows a batch over {options.keys:,} keys: milliseconds a batch"
        return {title: {"median": medians, "spread": result["spread"], "rows/s": rates}}

    return Measurement(run_rmw, tables)


@bench_command(OverheadOptions, "tailrace bench overhead", "tailrace bench overhead --batches 200 --out overhead.json")
def overhead(options: OverheadOptions) -> Measurement:
    """Measure the fixed cost of a micro-batch with tiny batches, beside Spark's RocksDB store."""
    from tailrace.lab.bench.overhead import run_overhead  # lazy: see cli.app

    def tables(result: dict[str, Any]) -> Tables:
        own = result["tailrace_durations_ms"]
        return {
            f"{options.rows:,} rows a batch: milliseconds a batch": {"p50": result["p50_ms"], "p99": result["p99_ms"]},
            "where they go (medians)": _longest_first(result["durations_ms"]),
            **({"inside Tailrace (medians)": _longest_first({"tailrace": own})} if own else {}),
        }

    return Measurement(run_overhead, tables)


def _longest_first(columns: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    names = {name for column in columns.values() for name in column}
    order = sorted(names, key=lambda name: -max(column.get(name, 0) for column in columns.values()))
    return {engine: {name: column[name] for name in order if name in column} for engine, column in columns.items()}


@bench_command(StartOptions, "tailrace bench start", "tailrace bench start --starts 21 --engines tailrace")
def start(options: StartOptions) -> Measurement:
    """Measure the time from start() until your function has the first rows, of a new and of a restarted query."""
    from tailrace.lab.bench.start import run_start  # lazy: see cli.app

    def tables(result: dict[str, Any]) -> Tables:
        columns = {"new query": result["median_ms"], "restarted": result["restart_median_ms"]}
        return {"milliseconds from start() to the first row (medians)": columns}

    return Measurement(run_start, tables)


@bench_command(MemoryOptions, "tailrace bench memory", "tailrace bench memory --keys 200000 --batches 6")
def memory(options: MemoryOptions) -> Measurement:
    """Measure batches over state of ten times the memory: their cost, its growth, and what the servers hold."""
    from tailrace.lab.bench.memory import run_memory  # lazy: see cli.app

    def tables(result: dict[str, Any]) -> Tables:
        columns = {
            "median": result["median_ms"],
            "budget": result["memory_bytes"],
            "server's peak": result["server_peak_bytes"],
        }
        return {f"{options.rows:,} rows a batch: milliseconds a batch, and bytes of memory": columns}

    return Measurement(run_memory, tables)


@bench_command(
    NexmarkOptions,
    "tailrace bench nexmark --queries q5,q7,q11",
    "tailrace bench nexmark --rows 250k --turns 6",
    "tailrace bench nexmark --queries q8 --set rate=1000",
)
def nexmark(options: NexmarkOptions) -> Measurement:
    """Measure NEXMark's queries beside Spark's RocksDB (and in-memory) store, query after query.

    About 22 minutes on two cores with the default queries, sizes and engines. Windows and sessions' gaps are as
    long as a turn unless --set says otherwise; people and auctions are active for two hours of event time.
    """
    from tailrace.lab.bench.nexmark import check_names, run_nexmark  # lazy: see cli.app

    def tables(result: dict[str, Any]) -> Tables:
        rates = result["throughput"]
        columns = {engine: {query: of[engine] for query, of in rates.items()} for engine in options.engines}
        return {f"{options.rows:,} events a batch or more: events a second": {**columns, "ratio": result["ratios"]}}

    check_names(options)
    return Measurement(run_nexmark, tables)


@bench_command(
    PortOptions,
    "tailrace bench port",
    "tailrace bench port --queries nexmark-q5,lr4",
    "tailrace bench port --queries keyed-sums --rows 10000",
)
def port(options: PortOptions) -> Measurement:
    """Measure what it costs to leave a query as it was written for Spark, beside the same one written by hand.

    About 25 minutes on two cores with all workloads.
    """
    from tailrace.lab.bench.port import chosen, run_port  # lazy: see cli.app

    def tables(result: dict[str, Any]) -> Tables:
        medians = result["query_median_ms"]
        columns = {
            "by hand": {query: of["tailrace"] for query, of in medians.items()},
            "as it is": {query: of["tailrace-plain"] for query, of in medians.items()},
        }
        return {"milliseconds a batch (medians)": {**columns, "ratio": result["ratios"]}}

    chosen(options)
    return Measurement(run_port, tables)


@bench_command(
    ProcessorsOptions,
    "tailrace bench processors",
    "tailrace bench processors --programs count --keys 10000 --rows 20000",
)
def processors(options: ProcessorsOptions) -> Measurement:
    """Measure StatefulProcessor programs beside Spark's transformWithStateInPandas on its RocksDB store.

    Needs protobuf, as Spark's own does: pip install 'tailrace[lab]'.
    """
    from tailrace.lab.bench.processors import run_processors  # lazy: see cli.app

    def tables(result: dict[str, Any]) -> Tables:
        medians = result["program_median_ms"]
        columns = {form: {program: of[form] for program, of in medians.items()} for form in options.forms}
        title = f"{options.keys:,} keys a batch: milliseconds a batch (medians)"
        return {title: {**columns, **{name: result[name] for name in ("ratios", "rows_ratios", "pandas_ratios")}}}

    return Measurement(run_processors, tables)


@bench_command(
    StoreOptions,
    "tailrace bench stores",
    "tailrace bench stores --sweeps ratio --rounds 9",
    "tailrace bench stores --window 20 --rate 1k --batch 1k --memory 50k --rounds 1",
)
def stores(options: StoreOptions) -> Measurement:
    """Measure the state stores by themselves, under the accesses of NEXMark's bids, setting by setting.

    About four minutes on two cores. State is about ten times the memory given; every answer is checked.
    """
    from tailrace.lab.bench.stores.bench import run_stores, tables  # lazy: see cli.app

    return Measurement(run_stores, lambda result: tables(result["sweeps"]))


@bench_command(
    CommitOptions,
    "tailrace bench commit",
    "tailrace bench commit --queries lr4 --batches 100 --trigger 3",
    "tailrace bench commit --store shaped --targets sync,async,async-free-store",
)
def commit(options: CommitOptions) -> Measurement:
    """Measure what a commit to a slow store costs, in every commit mode and beside Spark's RocksDB store.

    Linear Road and Cluster Monitoring, in batches of three seconds of traffic. About 37 minutes on two cores with all
    queries and targets.
    """
    from tailrace.lab.bench.commit.bench import run_commit, with_targets  # lazy: see cli.app

    def tables(result: dict[str, Any]) -> Tables:
        columns = {
            "p50 ms": "query_p50_ms",
            "p95 ms": "query_p95_ms",
            "p99 ms": "query_p99_ms",
            "kB/s": "throughput_kb_s",
            "commit, waited for": "commit_on_path_ms",
            "behind": "commit_behind_ms",
        }
        return {
            f"{query}, {options.rate:,} records a second": {
                title: {target: value for target, value in result[name][query].items() if value is not None}
                for title, name in columns.items()
            }
            for query in options.queries
        }

    with_targets(options)
    return Measurement(run_commit, tables)
