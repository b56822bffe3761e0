"""``tailrace bench nexmark``: NEXMark's queries, Tailrace against Spark's stores, query by query.

A query's engines live at the same time, one process each, and take turns as in ``bench_rmw``. Spark's engines run no
batches without data: what such a batch would do, the next one does, in its own measured time, and nothing runs beside
the engine whose turn it is. Rows are dropped while measuring. At the end every engine goes on from its checkpoint with
a few more batches and its rows kept: these must be the oracle's, so the state made while measuring was right.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tailrace.lab import measure, registry
from tailrace.lab.bench_rmw import ONE_PIECE_A_CORE, Report, engines_running, in_turns
from tailrace.lab.engine_process import EngineProcess
from tailrace.lab.events import write_batch
from tailrace.lab.nexmark.answers import ANSWERS
from tailrace.lab.nexmark.bench_check import check_further_rows
from tailrace.lab.nexmark.queries.registry import SPARK, TAILRACE
from tailrace.lab.nexmark.queries.version import Version
from tailrace.lab.nexmark.workloads import FEED, PREFIX
from tailrace.lab.registry import OURS, Settings, UnknownNameError, Value
from tailrace.lab.run import read_emitted

ENGINES = ("spark-rocksdb", "spark-memory", OURS)
QUERIES = tuple(
    query for query in ANSWERS if isinstance(TAILRACE[query], Version) and isinstance(SPARK[query], Version)
)
PEERS = {"ratios": "spark-rocksdb", "ratios_memory": "spark-memory"}
CHECKED = 2
"""Batches whose rows are kept and checked, after those that are measured."""

_CONFS = {**ONE_PIECE_A_CORE, "spark.sql.streaming.noDataMicroBatches.enabled": "false"}


@dataclass(frozen=True)
class NexmarkOptions:
    queries: tuple[str, ...] = QUERIES
    events: int = 4_000_000
    """Of each query, those of the warm-up included, those of the check not."""
    rows: int = 200_000
    warmup: int = 5
    engines: tuple[str, ...] = ("spark-rocksdb", OURS)
    seed: int = 1
    check: bool = True
    values: Mapping[str, Value] = field(default_factory=dict)
    confs: Mapping[str, str] = field(default_factory=dict)

    @property
    def batches(self) -> int:
        return -(-self.events // self.rows)


@dataclass(frozen=True)
class _Measured:
    batches: dict[str, list[dict[str, Any]]]
    """Engine to its batches, the warm-up left out."""
    rows_checked: int | None
    confs: dict[str, dict[str, str]]


def check_queries(queries: tuple[str, ...], engines: tuple[str, ...]) -> None:
    """Raises where a query is unknown or an engine cannot run it, before anything is started."""
    for query in queries:
        if query not in ANSWERS:
            raise UnknownNameError(f"NEXMark has no query {query!r}; there are {', '.join(ANSWERS)}")
        for engine in engines:
            registry.query(registry.workload(PREFIX + query), engine)


def run_nexmark(options: NexmarkOptions, work: Path, report: Report) -> dict[str, Any]:
    steps = options.batches + (CHECKED if options.check else 0)
    measured: dict[str, _Measured] = {}
    for number, query in enumerate(options.queries):

        def tell(what: str, done: int, before: int = number * steps, name: str = query) -> None:
            report(f"{name}: {what}", before + done, steps * len(options.queries))

        folder = work / query
        measured[query] = _run_query(query, options, folder, tell)
        shutil.rmtree(folder)  # a query's files may be gigabytes; those of one that fails stay where --work is given
    report("done", steps * len(options.queries), steps * len(options.queries))
    return _result(options, measured)


def _run_query(query: str, options: NexmarkOptions, work: Path, tell: Any) -> _Measured:
    workload = registry.workload(PREFIX + query)
    more = CHECKED * options.rows if options.check else 0
    settings = Settings(options.batches * options.rows + more, options.rows, options.seed, options.values)
    inputs = workload.inputs(settings)
    files: list[Path] = []
    timings: dict[str, list[dict[str, Any]]] = {name: [] for name in options.engines}

    def make() -> str:
        table = next(inputs)[FEED]
        files.append(write_batch(table, work / "events", f"{len(files):06d}", measure.cores()))
        return str(files[-1])

    tell("starting the engines", 0)
    confs = {**_CONFS, **options.confs}
    with engines_running(options.engines, work, confs, "noop", workload.name, options.values) as engines:
        for number in range(options.batches):
            tell("warming up" if number < options.warmup else "measuring", number)
            path = make()
            for name in in_turns(options.engines, number):
                timings[name].append(engines[name].ask("batch", file=path))
        rows_checked = None
        if options.check:
            tell("checking", options.batches)
            further = [make() for _ in range(CHECKED)]
            rows_checked = sum(_check(query, one, further, files, work, options) for one in engines.values())
    return _Measured(
        {name: series[options.warmup :] for name, series in timings.items()},
        rows_checked,
        {name: engine.confs for name, engine in engines.items()},
    )


def _check(
    query: str, engine: EngineProcess, further: list[str], files: list[Path], work: Path, options: NexmarkOptions
) -> int:
    out = work / "answers" / engine.engine
    engine.ask("stop")
    engine.ask("start", sink="parquet", out=str(out))
    for path in further:
        engine.ask("batch", file=path)
    engine.ask("stop")
    return check_further_rows(query, engine.engine, read_emitted(out), files, len(further), options.values)


def _result(options: NexmarkOptions, measured: dict[str, _Measured]) -> dict[str, Any]:
    ms = {
        query: {name: [float(batch["ms"]) for batch in series] for name, series in one.batches.items()}
        for query, one in measured.items()
    }
    rows = (options.batches - options.warmup) * options.rows
    result: dict[str, Any] = {"bench": "nexmark", "ratios": {}}
    for ratios, peer in PEERS.items():
        if OURS in options.engines and peer in options.engines:
            result[ratios] = {query: measure.ratio(sum(of[peer]), sum(of[OURS])) for query, of in ms.items()}
    series = {name: [one for of in ms.values() for one in of[name]] for name in options.engines}
    return {
        **result,
        "throughput": {query: {name: _rate(rows, each) for name, each in of.items()} for query, of in ms.items()},
        "query_median_ms": {query: _each(measure.median, of) for query, of in ms.items()},
        "query_spread": {query: _each(measure.spread, of) for query, of in ms.items()},
        "state_rows": _last(measured, "state_rows"),
        "state_bytes": _last(measured, "state_bytes"),
        "rows_checked": {query: one.rows_checked for query, one in measured.items()},
        "rows_per_s": {name: _rate(rows * len(ms), each) for name, each in series.items()},
        "median_ms": _each(measure.median, series),
        "spread": _each(measure.spread, series),
        "series_ms": series,
        "queries": ",".join(options.queries),
        "events": options.batches * options.rows,
        "rows": options.rows,
        "batches": options.batches,
        "warmup": options.warmup,
        "seed": options.seed,
        **options.values,
        "answers_equal": True if options.check else None,
        "machine": measure.machine(),
        "versions": measure.versions(),
        "confs": next(iter(measured.values())).confs,
    }


def _rate(rows: int, ms: list[float]) -> int:
    return round(rows / max(sum(ms), 1) * 1e3)


def _each(of: Any, series: dict[str, list[float]]) -> dict[str, float]:
    return {name: of(each) for name, each in series.items()}


def _last(measured: dict[str, _Measured], what: str) -> dict[str, dict[str, Any]]:
    """The state's size after the last measured batch; None where the engine does not tell."""
    return {query: {name: series[-1][what] for name, series in one.batches.items()} for query, one in measured.items()}
