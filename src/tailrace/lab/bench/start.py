"""``tailrace bench start``: the time from ``start()`` until the first rows are with the user's function.

Tailrace and Spark's RocksDB store have one Spark session each, in which ``keyed-sums`` is started again and again,
every time as a new query with a checkpoint of its own; then it is started a second time on that checkpoint, as after a
deployment. Its rows wait in a file before ``start()`` is called. The engines take turns. Starts before that are not
counted: they load classes and compile, which a machine does once.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tailrace.lab.bench import measure
from tailrace.lab.bench.comparison import Batches, Report, each, facts, in_turns, series_of
from tailrace.lab.bench.options import ROCKSDB, StartOptions
from tailrace.lab.engines.group import EngineGroup
from tailrace.lab.engines.process import EngineProcess
from tailrace.lab.registry import OURS, Bench, Ratio, register
from tailrace.lab.workloads import keyed_sums
from tailrace.lab.workloads.events import KeyedEvents, write_batch

KINDS = ("start", "restart")

register(
    Bench(
        "start",
        "The time from start() until the user's function has the first rows, in a warm Spark session.",
        (
            Ratio("start_ratio", "the start of Spark's RocksDB store", OURS, ROCKSDB, more_is_better=False),
            Ratio("restart_ratio", "its restart on a checkpoint", OURS, ROCKSDB, more_is_better=False),
        ),
    )
)


def run_start(options: StartOptions, work: Path, report: Report) -> dict[str, Any]:
    events = KeyedEvents(options.keys, options.rows, options.seed)
    files = [write_batch(events.batch(number), work / "events", f"{number:06d}", 1) for number in range(len(KINDS))]
    steps = options.warmup + options.starts
    queries = {f"start-{number}": {"commit": options.commit} for number in range(steps)}
    starts: dict[str, Batches] = {kind: {name: [] for name in options.engines} for kind in KINDS}
    report("starting the engines", 0, steps)
    with EngineGroup() as group:
        engines = {
            name: group.add(EngineProcess(keyed_sums.NAME, name, work, dict(options.confs), ways=queries))
            for name in options.engines
        }
        group.wait_ready()
        for number, query in enumerate(queries):
            report("warming up" if number < options.warmup else "measuring", number, steps)
            for name in in_turns(options.engines, number):
                for kind, file in zip(KINDS, files, strict=True):
                    os.sync()
                    found = engines[name].ask("first_row", query, file=str(file))
                    if number >= options.warmup:
                        starts[kind][name].append(found)
    report("done", steps, steps)
    return {**_result(options, starts), "confs": {name: engine.confs for name, engine in engines.items()}}


def _result(options: StartOptions, starts: dict[str, Batches]) -> dict[str, Any]:
    series = {kind: series_of(starts[kind], "first_row_ms") for kind in KINDS}
    first = {kind: each(measure.median, series[kind]) for kind in KINDS}
    calls = {kind: each(measure.median, series_of(starts[kind], "start_call_ms")) for kind in KINDS}
    result: dict[str, Any] = {"bench": "start"}
    if {ROCKSDB, OURS} <= set(options.engines):
        result |= {f"{kind}_ratio": measure.ratio(first[kind][OURS], first[kind][ROCKSDB]) for kind in KINDS}
    return {
        **result,
        "median_ms": first["start"],
        "restart_median_ms": first["restart"],
        "start_call_ms": calls["start"],
        "restart_call_ms": calls["restart"],
        "first_batch_ms": each(measure.median, series_of(starts["start"], "batch_ms")),
        "spread": each(measure.spread, series["start"]),
        "series_ms": series["start"],
        "series_restart_ms": series["restart"],
        **facts(options, "starts", "warmup", "rows", "keys", "seed", "commit"),
    }
