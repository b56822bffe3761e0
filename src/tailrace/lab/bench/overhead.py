"""``tailrace bench overhead``: the fixed price of a micro-batch, with batches too small for the work to matter.

Tailrace and Spark's RocksDB store, one process each, take turns over the same files with the same confs and the same
sink (``bench_sinks``); see ``bench_rmw`` for how a run goes. The result says where each engine's milliseconds go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tailrace.lab.bench import measure
from tailrace.lab.bench.rmw import Report, check_answers, engines_running, median_durations
from tailrace.lab.bench.turns import in_turns
from tailrace.lab.registry import OURS, Bench, Ratio, register
from tailrace.lab.workloads.events import KeyedEvents, write_batch

PEER = "spark-rocksdb"
ENGINES = (PEER, OURS)


register(
    Bench(
        "overhead",
        "The fixed price of a micro-batch: batches too small for the work in them to matter.",
        (
            Ratio("p50_ratio", "the median of Spark's RocksDB store", OURS, "spark-rocksdb", more_is_better=False),
            Ratio("p99_ratio", "the p99 of Spark's RocksDB store", OURS, "spark-rocksdb", 99, more_is_better=False),
        ),
    )
)


@dataclass(frozen=True)
class OverheadOptions:
    rows: int = 100
    keys: int = 1_000
    batches: int = 60
    warmup: int = 20
    engines: tuple[str, ...] = ENGINES
    sink: str = "collect"
    seed: int = 1
    check: bool = True
    confs: dict[str, str] = field(default_factory=dict)
    commit: str = "async"  # of Tailrace


def run_overhead(options: OverheadOptions, work: Path, report: Report) -> dict[str, Any]:
    events = KeyedEvents(options.keys, options.rows, options.seed)
    files: list[Path] = []
    timings: dict[str, list[dict[str, Any]]] = {name: [] for name in options.engines}
    steps = options.warmup + options.batches + options.check
    report("starting the engines", 0, steps)
    with engines_running(options.engines, work, options.confs, options.sink, commit=options.commit) as engines:
        for number in range(options.warmup + options.batches):
            report("warming up" if number < options.warmup else "measuring", number, steps)
            files.append(write_batch(events.batch(number), work / "events", f"{number:06d}", 1))
            for name in in_turns(options.engines, number):
                timings[name].append(engines[name].ask("batch", file=str(files[-1])))
        if options.check:
            report("checking every key", steps - 1, steps)
            files.append(write_batch(events.every_key(), work / "events", f"{len(files):06d}", 1))
            check_answers(engines, files, work)
    report("done", steps, steps)
    measured = {name: series[options.warmup :] for name, series in timings.items()}
    return {**_result(options, measured), "confs": {name: engine.confs for name, engine in engines.items()}}


def _result(options: OverheadOptions, measured: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    series = {name: [batch["ms"] for batch in batches] for name, batches in measured.items()}
    p50 = {name: measure.percentile(ms, 50) for name, ms in series.items()}
    p99 = {name: measure.percentile(ms, 99) for name, ms in series.items()}
    result: dict[str, Any] = {"bench": "overhead"}
    if PEER in series and OURS in series:
        result |= {"p50_ratio": measure.ratio(p50[OURS], p50[PEER]), "p99_ratio": measure.ratio(p99[OURS], p99[PEER])}
    return {
        **result,
        "p50_ms": p50,
        "p99_ms": p99,
        "spread": {name: measure.spread(ms) for name, ms in series.items()},
        "durations_ms": {name: median_durations(batches, "durations_ms") for name, batches in measured.items()},
        "tailrace_durations_ms": median_durations(measured.get(OURS, []), "own_ms"),
        "series_ms": series,
        "rows": options.rows,
        "keys": options.keys,
        "sink": options.sink,
        "batches": options.batches,
        "warmup": options.warmup,
        "seed": options.seed,
        "commit": options.commit,
        "answers_equal": True if options.check else None,
        "machine": measure.machine(),
        "versions": measure.versions(),
    }
