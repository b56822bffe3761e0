"""``tailrace bench overhead``: the fixed price of a micro-batch, with batches too small for the work to matter.

Tailrace and Spark's RocksDB store, one process each, take turns over the same files with the same confs and the same
sink (``sinks``); see ``rmw`` for how a run goes. The result says where each engine's milliseconds go.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from tailrace.lab.bench import comparison, measure
from tailrace.lab.bench.options import ROCKSDB, OverheadOptions
from tailrace.lab.bench.rmw import check_answers
from tailrace.lab.registry import OURS, Bench, Ratio, register
from tailrace.lab.workloads.events import KeyedEvents, write_batch

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


def run_overhead(options: OverheadOptions, work: Path, report: comparison.Report) -> dict[str, Any]:
    events = KeyedEvents(options.keys, options.rows, options.seed)
    files: list[Path] = []
    timings: comparison.Batches = {name: [] for name in options.engines}
    steps = options.warmup + options.batches + options.check
    report("starting the engines", 0, steps)
    with comparison.engines_running(options, work, {}, options.sink) as engines:
        for number in range(options.warmup + options.batches):
            report("warming up" if number < options.warmup else "measuring", number, steps)
            files.append(write_batch(events.batch(number), work / "events", f"{number:06d}", 1))
            for name in comparison.in_turns(options.engines, number):
                timings[name].append(engines[name].ask("batch", file=str(files[-1])))
        if options.check:
            report("checking every key", steps - 1, steps)
            files.append(write_batch(events.every_key(), work / "events", f"{len(files):06d}", 1))
            check_answers(engines, files, work)
    report("done", steps, steps)
    measured = {name: series[options.warmup :] for name, series in timings.items()}
    return {**_result(options, measured), "confs": {name: engine.confs for name, engine in engines.items()}}


def _result(options: OverheadOptions, measured: comparison.Batches) -> dict[str, Any]:
    series = comparison.series_of(measured)
    p50, p99 = (comparison.each(partial(measure.percentile, q=q), series) for q in (50, 99))
    result: dict[str, Any] = {"bench": "overhead"}
    if ROCKSDB in series and OURS in series:
        result |= {name: measure.ratio(of[OURS], of[ROCKSDB]) for name, of in (("p50_ratio", p50), ("p99_ratio", p99))}
    return {
        **result,
        "p50_ms": p50,
        "p99_ms": p99,
        "spread": comparison.each(measure.spread, series),
        "durations_ms": {
            name: comparison.median_durations(batches, "durations_ms") for name, batches in measured.items()
        },
        "tailrace_durations_ms": comparison.median_durations(measured.get(OURS, []), "own_ms"),
        "series_ms": series,
        **comparison.facts(options, "rows", "keys", "batches", "warmup", "sink", "seed", "commit"),
    }
