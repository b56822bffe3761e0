"""``tailrace bench nexmark``: NEXMark's queries, Tailrace against Spark's stores, query by query.

A query's engines live at the same time, one process each, and take turns of several batches as in ``rmw``: the
disk comes to rest before a turn, and the first batch of a turn is not counted. Spark's engines run no batches without
data: what such a batch would do, the next one does, in its own measured time, and nothing runs beside the engine whose
turn it is. All engines deliver the same answer to the same sink. At the end every engine goes on from its checkpoint
with a few more batches and its rows kept: these must be the oracle's, so the state made while measuring was right.

Windows are as long as a turn, and longer than a batch, so that they are kept from batch to batch. With the default
warm-up each turn has one batch in which windows end, and counts it: the second for Tailrace and the third for Spark,
which closes windows by what it saw before a batch. People bid, and auctions are bid on, for two hours, as in the Keyed
Prefetching paper's workload, and the stream has run for so long before: so there are many keys, and state is large.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.lab import registry
from tailrace.lab.bench import comparison, measure
from tailrace.lab.bench.options import MEMORY, ROCKSDB, NexmarkOptions
from tailrace.lab.engines.process import EngineProcess
from tailrace.lab.registry import OURS, Bench, Settings, UnknownNameError, Value, register
from tailrace.lab.run import read_output
from tailrace.lab.workloads.events import write_batch
from tailrace.lab.workloads.nexmark.answers import ANSWERS
from tailrace.lab.workloads.nexmark.bench_check import check_further_rows
from tailrace.lab.workloads.nexmark.events.config import Config
from tailrace.lab.workloads.nexmark.workloads import FEED, PREFIX

LIGHT = {"q8": 5, "q11": 2, "q12": 2}
"""Queries that have less to do with a batch get so many times the events: few of them are people and auctions, which Q8
asks about, and three bids of four are the hot bidder's, which every engine counts before it looks at its state."""
PEERS = {"ratios": ROCKSDB, "ratios_memory": MEMORY}

_ACTIVE_S = 7_200


register(
    Bench(
        "nexmark",
        "NEXMark's queries one after the other. A ratio is the throughput over that of Spark's RocksDB store; series "
        "hold the batches of all queries in the order in which they ran.",
        (),  # one ratio a query, under its name
    )
)


def rows_of(options: NexmarkOptions, query: str) -> int:
    return options.rows * LIGHT.get(query, 1)


def values_of(options: NexmarkOptions, query: str) -> dict[str, Value]:
    """The workload's parameters: those given, and where not, windows and gaps as long as a turn and long lives.

    The slide of sliding windows is half their length, as in FlowKV.
    """
    values = registry.workload(PREFIX + query).values(options.given)
    rate, a_turn = int(values["rate"]), options.turn * rows_of(options, query)
    length_ms = max(2, a_turn * 1_000 // rate)
    # Whole windows before, so that turns begin where windows do.
    before_ms = _ACTIVE_S * 1_000 + -(Config().base_time_ms + _ACTIVE_S * 1_000) % length_ms
    ours: dict[str, Value] = {
        "window_ms": length_ms,
        "slide_ms": length_ms // 2,
        "gap_ms": length_ms,
        "active_people": max(1, _ACTIVE_S * rate // 50),
        "auctions_in_flight": max(1, 3 * _ACTIVE_S * rate // 50),
        "first_event": before_ms * rate // 1_000,
    }
    names = {text.partition("=")[0] for text in options.given}
    return {**values, **{name: value for name, value in ours.items() if name not in names}}


@dataclass(frozen=True)
class _Measured:
    batches: comparison.Batches
    """Engine to its batches that count."""
    rows_checked: int | None
    confs: dict[str, dict[str, str]]


def check_names(options: NexmarkOptions) -> None:
    """Raises where a query is unknown or an engine cannot run it, before anything is started."""
    for query in options.queries:
        if query not in ANSWERS:
            raise UnknownNameError(f"NEXMark has no query {query!r}; there are {', '.join(ANSWERS)}")
        for engine in options.engines:
            registry.query(registry.workload(PREFIX + query), engine)
    values_of(options, options.queries[0])


def run_nexmark(options: NexmarkOptions, work: Path, report: comparison.Report) -> dict[str, Any]:
    steps = options.measured + options.further
    measured: dict[str, _Measured] = {}
    for number, query in enumerate(options.queries):

        def progress(what: str, done: int, before: int = number * steps, name: str = query) -> None:
            report(f"{name}: {what}", before + done, steps * len(options.queries))

        folder = work / query
        measured[query] = _run_query(query, options, folder, progress)
        shutil.rmtree(folder)  # a query's files may be gigabytes; those of one that fails stay where --work is given
    report("done", steps * len(options.queries), steps * len(options.queries))
    return _result(options, measured)


def _run_query(query: str, options: NexmarkOptions, work: Path, progress: Callable[[str, int], None]) -> _Measured:
    workload, values, rows = registry.workload(PREFIX + query), values_of(options, query), rows_of(options, query)
    settings = Settings((options.measured + options.further) * rows, rows, options.seed, values)
    inputs = workload.inputs(settings)
    files: list[Path] = []

    def make(count: int) -> list[str]:
        for _ in range(count):
            table = next(inputs)[FEED]
            files.append(write_batch(table, work / "events", f"{len(files):06d}", measure.cores()))
        return [str(path) for path in files[-count:]]

    progress("starting the engines", 0)
    with comparison.engines_running(
        options, work, comparison.NO_EMPTY_BATCHES, options.sink, workload.name, values
    ) as engines:
        timings = comparison.run_turns(options, engines, make, progress)
        rows_checked = None
        if options.check:
            progress("checking", options.measured)
            further = make(options.further)
            rows_checked = sum(_check(query, one, further, files, work, values) for one in engines.values())
    return _Measured(timings, rows_checked, {name: engine.confs for name, engine in engines.items()})


def _check(
    query: str, engine: EngineProcess, further: list[str], files: list[Path], work: Path, values: Mapping[str, Value]
) -> int:
    out = work / "answers" / engine.engine
    engine.ask("stop")
    engine.ask("start", sink="parquet", out=str(out))
    for path in further:
        engine.ask("batch", file=path)
    engine.ask("stop")
    return check_further_rows(query, engine.engine, read_output(out), files, len(further), values)


def _result(options: NexmarkOptions, measured: dict[str, _Measured]) -> dict[str, Any]:
    ms, cpu_ms = (
        {query: comparison.series_of(one.batches, what) for query, one in measured.items()} for what in ("ms", "cpu_ms")
    )
    batches = options.turns * comparison.counted(options.turn)
    rows = {query: batches * rows_of(options, query) for query in measured}
    result: dict[str, Any] = {"bench": "nexmark", "ratios": {}}
    for ratios, peer in PEERS.items():
        if OURS in options.engines and peer in options.engines:
            result[ratios] = {query: measure.ratio(sum(of[peer]), sum(of[OURS])) for query, of in ms.items()}
            result[f"cpu_{ratios}"] = {query: _cpu_ratio(of[peer], of[OURS]) for query, of in cpu_ms.items()}
    series = {name: [one for of in ms.values() for one in of[name]] for name in options.engines}
    return {
        **result,
        "throughput": {
            query: {name: _rate(rows[query], each) for name, each in of.items()} for query, of in ms.items()
        },
        "query_median_ms": {query: comparison.each(measure.median, of) for query, of in ms.items()},
        "query_spread": {query: comparison.each(measure.spread, of) for query, of in ms.items()},
        "state_rows": _last(measured, "state_rows"),
        "state_bytes": _last(measured, "state_bytes"),
        "rows_checked": {query: one.rows_checked for query, one in measured.items()},
        "rows_per_s": {name: _rate(sum(rows.values()), each) for name, each in series.items()},
        "median_ms": comparison.each(measure.median, series),
        "spread": comparison.each(measure.spread, series),
        "series_ms": series,
        "series_cpu_ms": {name: [one for of in cpu_ms.values() for one in of[name]] for name in options.engines},
        "queries": ",".join(options.queries),
        "batches": batches,
        "given": " ".join(options.given),
        "values": {query: values_of(options, query) for query in measured},
        **comparison.facts(options, "rows", "turn", "warmup", "sink", "seed", "commit"),
        "confs": next(iter(measured.values())).confs,
    }


def _cpu_ratio(peer: list[float | None], ours: list[float | None]) -> float | None:
    """None where the system reports no processor time, or too little of it."""
    sums = [sum(value for value in each if value is not None) for each in (peer, ours)]
    return measure.ratio(*sums) if sums[1] else None


def _rate(rows: int, ms: list[float]) -> int:
    return round(rows / max(sum(ms), 1) * 1e3)


def _last(measured: dict[str, _Measured], what: str) -> dict[str, dict[str, Any]]:
    """The state's size after the last measured batch; None where the engine does not report it."""
    return {query: {name: series[-1][what] for name, series in one.batches.items()} for query, one in measured.items()}
