"""``tailrace bench port``: what it costs to leave a query as it was written for Spark.

Each query runs twice on Tailrace: as the lab has it for Tailrace, by hand, and as the lab has it for Spark, unchanged
(``tailrace.writeStream``). Both live at the same time, one process each, and take turns over the same files as in
``nexmark``. All rows of all batches go to Parquet files, by the same function, in the measured time: what Spark does
with the rows behind the last operator is in it. At the end all rows of both must be the oracle's, and so equal.

Batches are as large as the workloads say. A query that is not read, and so runs on Spark, is shown with the reason; its
ratio says nothing of Tailrace then. Queries without state have no version of Tailrace's.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tailrace.errors import TailraceError
from tailrace.lab import registry
from tailrace.lab.bench import comparison, measure
from tailrace.lab.bench.options import PLAIN, PortOptions
from tailrace.lab.engines.group import EngineGroup
from tailrace.lab.engines.process import EngineProcess
from tailrace.lab.registry import OURS, Bench, Settings, UnknownNameError, Workload, register
from tailrace.lab.run import check_answer
from tailrace.lab.workloads.events import write_batch

ENGINES = (OURS, PLAIN)
_SPARE = 2
"""Workloads' batches are only on average as large as was asked for."""

register(
    Bench(
        "port",
        "Queries as they are written for Spark, on Tailrace, beside the same ones written by hand. A ratio is the "
        "median time of a batch over that of the one by hand; series hold the batches of all queries in their order.",
        (),  # one ratio a query, under its name
    )
)


@dataclass
class _Measured:
    batches: comparison.Batches = field(default_factory=lambda: {name: [] for name in ENGINES})
    rows_checked: int | None = None
    why_spark: str | None = None
    failed: str | None = None
    confs: dict[str, dict[str, str]] = field(default_factory=dict)


def portable() -> list[Workload]:
    """The workloads that have a query for both, whose answers are known."""
    return [
        one
        for one in registry.workloads()
        if all(registry.own(one.queries, name) and one.oracle_of(name) for name in ENGINES)
    ]


def chosen(options: PortOptions) -> list[Workload]:
    """The workloads that are asked for; ``UnknownNameError`` where one has no query for both."""
    every = portable()
    found = [registry.workload(name) for name in options.queries] or every
    for workload in found:
        if workload not in every:
            names = ", ".join(one.name for one in every)
            raise UnknownNameError(f"{workload.name} has no query of its own for Tailrace and for Spark; {names} have")
    return found


def run_port(options: PortOptions, work: Path, report: comparison.Report) -> dict[str, Any]:
    steps = options.warmup + options.turns * options.turn
    workloads = chosen(options)
    measured: dict[str, _Measured] = {}
    for number, workload in enumerate(workloads):

        def progress(what: str, done: int, before: int = number * steps, name: str = workload.name) -> None:
            report(f"{name}: {what}", before + done, steps * len(workloads))

        folder, found = work / workload.name, _Measured()
        measured[workload.name] = found
        try:
            _run_query(workload, options, folder, progress, found)
        except TailraceError as error:  # the others are still worth measuring
            found.failed = str(error)
        else:
            shutil.rmtree(folder)  # the files of one that fails stay where --work is given
    report("done", steps * len(workloads), steps * len(workloads))
    return _result(options, measured)


def _run_query(
    workload: Workload, options: PortOptions, work: Path, progress: Callable[[str, int], None], found: _Measured
) -> None:
    rows, count = options.rows or workload.rows, options.warmup + options.turns * options.turn
    settings = Settings(_SPARE * count * rows, rows, options.seed, workload.values())
    inputs = workload.inputs(settings)
    (feed,) = workload.feeds
    files: list[Path] = []

    def make(several: int) -> list[str]:
        for _ in range(several):
            files.append(write_batch(next(inputs)[feed], work / "events", f"{len(files):06d}", measure.cores()))
        return [str(path) for path in files[-several:]]

    progress("starting the engines", 0)
    confs, commit = {**comparison.ONE_PIECE_A_CORE, **options.confs}, {"commit": options.commit}
    with workload.serving(settings) as environment, EngineGroup() as group:
        engines = {
            name: group.add(
                EngineProcess(workload.name, name, work, confs, settings.values, commit, environment=environment)
            )
            for name in ENGINES
        }
        group.wait_ready()
        for engine in engines.values():
            answer = engine.ask("start", sink="parquet", out=str(engine.work / "rows"))
            found.confs[engine.name] = engine.confs
            found.why_spark = found.why_spark or answer["why_spark"]
        found.batches = comparison.run_turns(options, engines, make, progress)
    if options.check:
        progress("checking", count)
        found.rows_checked = sum(
            check_answer(workload, name, settings, {feed: files}, engine.work / "rows")
            for name, engine in engines.items()
        )


def _result(options: PortOptions, measured: dict[str, _Measured]) -> dict[str, Any]:
    whole = {query: one for query, one in measured.items() if one.failed is None}
    ms = {query: comparison.series_of(one.batches) for query, one in whole.items()}
    medians = {query: comparison.each(measure.median, of) for query, of in ms.items()}
    series = {name: [one for of in ms.values() for one in of[name]] for name in ENGINES}
    ratios = {query: measure.ratio(of[PLAIN], of[OURS]) for query, of in medians.items()}
    failed = {query: one.failed for query, one in measured.items() if one.failed is not None}
    on_spark = {query: one.why_spark for query, one in whole.items() if one.why_spark is not None}
    on_tailrace = [ratio for query, ratio in ratios.items() if query not in on_spark]
    return {
        "bench": "port",
        "ratios": ratios,
        "largest_ratio": max(on_tailrace, default=None),
        "on_spark": on_spark,
        "failed": failed,
        "query_median_ms": medians,
        "query_spread": {query: comparison.each(measure.spread, of) for query, of in ms.items()},
        "rows_checked": {query: one.rows_checked for query, one in whole.items()},
        "median_ms": comparison.each(measure.median, series) if whole else {},
        "series_ms": series,
        "queries": ",".join(measured),
        "batches": options.turns * comparison.counted(options.turn),
        **comparison.facts(options, "rows", "turn", "warmup", "seed", "commit"),
        "answers_equal": not failed if options.check else None,
        "confs": next((one.confs for one in whole.values()), {}),
    }
