"""``tailrace bench start``: the time from ``start()`` until the first rows are with the user's function.

Tailrace and Spark's RocksDB store have one Spark session each, in which ``keyed-sums`` is started again and again,
every time as a new query with a checkpoint of its own; then it is started a second time on that checkpoint, as after a
deployment. Its rows wait in a file before ``start()`` is called. The engines take turns. Starts before that are not
counted: they load classes and compile, which a machine does once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tailrace.lab.bench import measure
from tailrace.lab.bench.rmw import Report
from tailrace.lab.bench.turns import in_turns
from tailrace.lab.engines.group import EngineGroup
from tailrace.lab.engines.process import EngineProcess
from tailrace.lab.registry import OURS, Bench, Ratio, register
from tailrace.lab.workloads import keyed_sums
from tailrace.lab.workloads.events import KeyedEvents, write_batch

PEER = "spark-rocksdb"
ENGINES = (PEER, OURS)
KINDS = ("start", "restart")

register(
    Bench(
        "start",
        "The time from start() until the user's function has the first rows, in a warm Spark session.",
        (
            Ratio("start_ratio", "the start of Spark's RocksDB store", OURS, PEER, more_is_better=False),
            Ratio("restart_ratio", "its restart on a checkpoint", OURS, PEER, more_is_better=False),
        ),
    )
)


@dataclass(frozen=True)
class StartOptions:
    starts: int = 9
    """Starts measured."""
    warmup: int = 3
    """Starts before that."""
    rows: int = 1_000
    keys: int = 1_000
    engines: tuple[str, ...] = ENGINES
    seed: int = 1
    confs: Mapping[str, str] = field(default_factory=dict)
    commit: str = "async"
    """Of Tailrace."""


def run_start(options: StartOptions, work: Path, report: Report) -> dict[str, Any]:
    events = KeyedEvents(options.keys, options.rows, options.seed)
    files = [write_batch(events.batch(number), work / "events", f"{number:06d}", 1) for number in range(len(KINDS))]
    steps = options.warmup + options.starts
    queries = {f"start-{number}": {"commit": options.commit} for number in range(steps)}
    series: dict[str, dict[str, list[dict[str, float]]]] = {
        kind: {name: [] for name in options.engines} for kind in KINDS
    }
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
                    series[kind][name].append(engines[name].ask("first_row", query, file=str(file)))
    report("done", steps, steps)
    return {**_result(options, series), "confs": {name: engine.confs for name, engine in engines.items()}}


def _result(options: StartOptions, series: dict[str, dict[str, list[dict[str, float]]]]) -> dict[str, Any]:
    def part(kind: str, what: str) -> dict[str, list[float]]:
        return {name: [each[what] for each in starts[options.warmup :]] for name, starts in series[kind].items()}

    def medians(kind: str, what: str) -> dict[str, float]:
        return {name: measure.median(values) for name, values in part(kind, what).items()}

    first = {kind: medians(kind, "first_row_ms") for kind in KINDS}
    result: dict[str, Any] = {"bench": "start"}
    if set(ENGINES) <= set(options.engines):
        result |= {f"{kind}_ratio": measure.ratio(first[kind][OURS], first[kind][PEER]) for kind in KINDS}
    return {
        **result,
        "median_ms": first["start"],
        "restart_median_ms": first["restart"],
        "start_call_ms": medians("start", "start_call_ms"),
        "restart_call_ms": medians("restart", "start_call_ms"),
        "first_batch_ms": medians("start", "batch_ms"),
        "spread": {name: measure.spread(values) for name, values in part("start", "first_row_ms").items()},
        "series_ms": part("start", "first_row_ms"),
        "series_restart_ms": part("restart", "first_row_ms"),
        "starts": options.starts,
        "warmup": options.warmup,
        "rows": options.rows,
        "keys": options.keys,
        "seed": options.seed,
        "commit": options.commit,
        "machine": measure.machine(),
        "versions": measure.versions(),
    }
