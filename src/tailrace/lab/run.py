"""``tailrace run``: one workload on one engine, from made events to a checked answer.

The events are made as files first, while the engine starts; then the engine runs through them, one file of each feed a
micro-batch, and ends. With a check the rows go to Parquet files and must equal the oracle's, which sees the input files
alone. Everything lies in the folder given; a failed or interrupted run ends its engine at once. Single-threaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from tailrace.lab import registry
from tailrace.lab.bench import measure
from tailrace.lab.engines.process import EngineError, EngineProcess
from tailrace.lab.records.record import Record, Series
from tailrace.lab.registry import Files, Settings, Value, Workload
from tailrace.lab.run_check import check_rows
from tailrace.lab.workloads.events import write_batch

WARMUP = 2
"""Epochs that medians leave out, where there are more: Spark starts up in them."""

_FIRST_S = 1_767_225_600  # the files' times: Spark takes them in this order, and those of one moment in any
_METRICS = ("ms", "rows", "rows_per_s", "state_rows")


@dataclass(frozen=True)
class RunOptions:
    workload: str
    engine: str = registry.OURS
    events: int = 1_000_000
    rows: int | None = None
    seed: int = 1
    check: bool = True
    values: Mapping[str, Value] = field(default_factory=dict)
    confs: Mapping[str, str] = field(default_factory=dict)
    commit: str = "async"
    """Of Tailrace."""


@dataclass(frozen=True)
class Epoch:
    epoch: int
    rows: int
    ms: float
    state_rows: int | None

    @property
    def rows_per_s(self) -> float:
        return round(self.rows / max(self.ms, 1) * 1e3, 1)


class Watcher(Protocol):
    """Learns how the run goes."""

    def stage(self, what: str, done: int, steps: int) -> None: ...

    def epoch(self, epoch: Epoch, done: int, steps: int) -> None: ...


@dataclass(frozen=True)
class Outcome:
    parameters: dict[str, Any]
    summary: dict[str, Any]
    series: Series
    confs: dict[str, dict[str, str]]


def run_workload(options: RunOptions, work: Path, watcher: Watcher) -> Outcome:
    workload = registry.workload(options.workload)
    registry.query(workload, options.engine)  # wrong names are refused before anything is started
    settings = Settings(options.events, options.rows or workload.rows, options.seed, dict(options.values))
    checked = options.check and workload.oracle_of(options.engine) is not None and registry.engine(options.engine).exact
    sink = "parquet" if checked else "noop"
    batches = -(-settings.events // settings.rows)
    with workload.serving(settings) as environment:
        engine = EngineProcess(
            workload.name,
            options.engine,
            work,
            dict(options.confs),
            settings.values,
            {"commit": options.commit},
            environment=environment,
        )
        try:
            files = _make_files(workload, settings, work / "events", batches, watcher)
            watcher.stage("starting the engine", 0, batches)
            engine.wait_ready()
            epochs, wall_s = _follow(engine, work, sink, batches, watcher)
        except BaseException:
            engine.kill()  # a failed or interrupted run has nothing to wait for
            raise
        finally:
            engine.close()
    epochs = with_rows_made(epochs, rows_made(files))
    summary = _summary(epochs, wall_s)
    if checked:
        watcher.stage("checking the answer", batches, batches)
        checked_rows = check_answer(workload, options.engine, settings, files, work / "rows")
        summary |= {"answers_equal": True, "rows_checked": checked_rows}
    else:
        summary |= {"answers_equal": None, "rows_checked": 0}
    return Outcome(
        parameters={
            "engine": options.engine,
            "events": settings.events,
            "rows": settings.rows,
            "seed": settings.seed,
            "sink": sink,
            **settings.values,
        },
        summary={name: {options.engine: value} if _per_engine(name) else value for name, value in summary.items()},
        series={options.engine: {metric: [getattr(epoch, metric) for epoch in epochs] for metric in _METRICS}},
        confs={options.engine: engine.confs},
    )


def _make_files(
    workload: Workload, settings: Settings, folder: Path, batches: int, watcher: Watcher
) -> dict[str, list[Path]]:
    files: dict[str, list[Path]] = {feed: [] for feed in workload.feeds}
    for number, batch in enumerate(workload.inputs(settings)):
        watcher.stage("making events", number, batches)
        for feed, table in batch.items():
            path = write_batch(table, folder / feed, f"{number:06d}", measure.cores())
            os.utime(path, (_FIRST_S + number, _FIRST_S + number))
            files[feed].append(path)
    return files


def rows_made(files: Files) -> list[int]:
    """Rows of each micro-batch, over all feeds."""
    return [sum(pq.read_metadata(path).num_rows for path in paths) for paths in zip(*files.values(), strict=True)]


def with_rows_made(epochs: list[Epoch], made: list[int]) -> list[Epoch]:
    """The epochs with the rows that they were given.

    What Spark says that it read is more where a query reads a feed twice, and less where a filter spares it pages.
    """
    if len(epochs) != len(made):
        raise EngineError(f"{len(made)} files of events were to be as many epochs; there were {len(epochs)} with rows")
    return [replace(epoch, rows=rows) for epoch, rows in zip(epochs, made)]


def _follow(engine: EngineProcess, work: Path, sink: str, batches: int, watcher: Watcher) -> tuple[list[Epoch], float]:
    epochs: list[Epoch] = []
    watcher.stage("running", 0, batches)
    answer = engine.ask("run", events=str(work / "events"), sink=sink, out=str(work / "rows"))
    while "batch" in answer:
        epochs.append(Epoch(**answer["batch"]))
        watcher.epoch(epochs[-1], len(epochs), batches)
        answer = engine.answer()
    return epochs, float(answer["wall_s"])


def _summary(epochs: list[Epoch], wall_s: float) -> dict[str, Any]:
    warmup = WARMUP if len(epochs) > WARMUP else 0
    counted = epochs[warmup:]
    ms = [epoch.ms for epoch in counted]
    state = [epoch.state_rows for epoch in epochs if epoch.state_rows is not None]
    return {
        "median_ms": measure.median(ms),
        "p99_ms": measure.percentile(ms, 99),
        "spread": measure.spread(ms),
        "rows_per_s": round(sum(epoch.rows for epoch in counted) / max(sum(ms), 1) * 1e3),
        "state_rows_max": max(state) if state else None,
        "wall_s": wall_s,
        "epochs": len(epochs),
        "warmup": warmup,
    }


def _per_engine(name: str) -> bool:
    return name in ("median_ms", "p99_ms", "spread", "rows_per_s", "state_rows_max", "wall_s")


def check_answer(workload: Workload, engine: str, settings: Settings, files: Files, out: Path) -> int:
    """All rows that a ``parquet`` sink has written to ``out`` must be the oracle's. Gives how many these are."""
    oracle = workload.oracle_of(engine)
    assert oracle is not None
    expected = oracle(files, settings)
    rows = read_output(out)
    finish = registry.own(workload.finish, engine)
    if rows is not None and finish is not None:
        rows = finish(rows, settings.values)
    found = workload.final(rows) if rows is not None else expected.slice(0, 0)
    check_rows(workload.name, found, expected)
    return int(expected.num_rows)


def read_output(out: Path) -> pa.Table | None:
    """All rows of a ``parquet`` sink with their ``epoch``, which Spark made a folder of; None where there are none."""
    rows = pads.dataset(out, format="parquet", partitioning="hive").to_table() if out.exists() else None
    return rows if rows is not None and rows.num_rows else None


def result(record: Record) -> dict[str, Any]:
    """The one JSON object that the command gives: the record of a run, flat."""
    engine = record.parameters["engine"]
    summary = {name: value[engine] if _per_engine(name) else value for name, value in record.summary.items()}
    return {
        "run": record.name,
        **record.parameters,
        **summary,
        "series": record.series[engine],
        "confs": record.confs[engine],
        "machine": record.machine,
        "versions": record.versions,
    }
