"""``tailrace bench prefetch``: what rows wait for state that is not in memory, by cache policy and way of reading.

Modes of Tailrace live at the same time, each a query with a state server of its own in one Spark session, so that what
the JVM has compiled or collects makes no difference between them; Spark's RocksDB store, where it is asked for, has a
session of its own. State is several times the memory, and reads from disk or table take a millisecond by key. They take
turns of several batches; the first batch of a turn is not counted. Filling the state and warming up are done side by
side. At the end every mode goes on from its checkpoint with a few more batches, and its rows must be the oracle's.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from tailrace.lab import registry
from tailrace.lab.bench import measure
from tailrace.lab.bench.comparison import NO_EMPTY_BATCHES, Report, batch_with_cpu, facts, in_turns
from tailrace.lab.bench.prefetch.numbers import (
    Measured,
    batch_of,
    cached_row_bytes,
    hit_ratio,
    percentiles,
    result,
    rows_per_s,
    series,
    totals,
)
from tailrace.lab.bench.prefetch.options import PrefetchOptions
from tailrace.lab.bench.prefetch.workloads import Case, Mode
from tailrace.lab.engines.group import EngineGroup
from tailrace.lab.engines.process import ONLY, EngineProcess
from tailrace.lab.registry import OURS, Bench, Settings, Workload, register
from tailrace.lab.run import read_output
from tailrace.lab.run_check import check_rows
from tailrace.lab.workloads.events import write_batch
from tailrace.lab.workloads.nexmark.bench_check import check_further_rows, without

FITS_BYTES = 4 << 30
"""More than any workload's state takes in memory: one gigabyte is too little for Q19's."""
_JVM = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""Spark's planner is so much code that the JVM's second compiler is at it for hours, with a fifth of all processor
time, in one batch more and in another less. A query that has run for a day has that behind it; here the first
compiler's code, which is slower and soon done, stands for it, in all sessions alike. With as much room for it as the
JVM has by default for both: with what it has for one (48 MB) four queries fill it, and Spark ends."""
_CONFS = {**NO_EMPTY_BATCHES, "spark.driver.extraJavaOptions": _JVM}
_FURTHER = 4
"""Batches whose rows are checked."""


register(
    Bench(
        "prefetch",
        "What rows wait for state that is not in memory, which is several times as large as memory, where reading one "
        "key takes a millisecond. A ratio of waits is the p99.9 of a baseline over that with hints, one of throughput "
        "that with hints over the best baseline's; series hold the batches of all workloads in order.",
        (),  # three ratios a workload, under its name
    )
)


def run_prefetch(options: PrefetchOptions, work: Path, report: Report) -> dict[str, Any]:
    runs = list(_runs(options))
    steps = 3 + options.warmup + options.turns * options.turn
    measured: dict[str, Measured] = {}
    for number, (name, one, memory_bytes) in enumerate(runs):

        def progress(what: str, done: int, before: int = number * steps, run: str = name) -> None:
            report(f"{run}: {what}", before + done, steps * len(runs))

        folder = work / name.replace(" ", "-")
        measured[name] = _run_case(one, memory_bytes, options, folder, progress)
        shutil.rmtree(folder)
    report("done", steps * len(runs), steps * len(runs))
    return _result(options, measured)


def _runs(options: PrefetchOptions) -> Iterator[tuple[str, Case, int]]:
    """Name, case and memory of each run: one a workload, or one a workload and value that is swept."""
    for name in options.workloads:
        made = options.case_of(name)
        if options.all_in_cache:
            yield name, made, FITS_BYTES
        elif not options.sweeps:
            yield name, made, made.memory_bytes
        for skew in options.sweeps.get("skew", ()):
            kind = type(made.values[made.skew])
            yield f"{name} skew {skew}", replace(made, values={**made.values, made.skew: kind(skew)}), made.memory_bytes
        for times in options.sweeps.get("rows", ()):
            yield f"{name} rows {times}", replace(made, rows=max(1, round(made.rows * float(times)))), made.memory_bytes
        for size in options.sweeps.get("memory", ()):
            yield f"{name} memory {size}", made, registry.size(size)


class Runner:
    """One mode, a query of an engine's process, and what its operators had counted by its last batch."""

    def __init__(self, mode: Mode, engine: EngineProcess, way: str) -> None:
        self.mode, self.engine = mode, engine
        self._way = way
        self.batches: list[dict[str, Any]] = []
        self.cached_row_bytes: float | None = None
        self._before: dict[str, float] = {}

    def ask(self, do: str, **arguments: object) -> dict[str, Any]:
        return self.engine.ask(do, self._way, **arguments)

    def turn(self, paths: list[str]) -> list[dict[str, Any]]:
        return [self._batch(path) for path in paths]

    def finish_batch(self) -> None:
        """Waits for a batch that was shown and is not measured."""
        report = self.ask("finished")
        if self.cached_row_bytes is None:
            self.cached_row_bytes = cached_row_bytes(report)
        self._before = totals(report)

    def _batch(self, path: str) -> dict[str, Any]:
        report = batch_with_cpu(lambda: self.ask("batch", file=path), self.engine)
        batch = batch_of(report, self._before)
        self._before = totals(report)
        return {**batch, "cpu_ms": report["cpu_ms"]}


def _run_case(
    one: Case, memory_bytes: int, options: PrefetchOptions, work: Path, progress: Callable[[str, int], None]
) -> Measured:
    workload, modes = registry.workload(one.workload), options.chosen
    files: list[Path] = []
    feed = _feed(workload, one, options)

    def make(count: int) -> list[str]:
        for _ in range(count):
            files.append(write_batch(next(feed), work / "events", f"{len(files):06d}", measure.cores()))
        return [str(path) for path in files[-count:]]

    progress("starting", 0)
    settings = Settings(one.rows, one.rows, options.seed, dict(one.values))
    with workload.serving(settings) as serving, EngineGroup() as group:
        environment = {**serving, **options.environment_of(one)}

        def process(engine: str, ways: Mapping[str, Mapping[str, str]] | None = None) -> EngineProcess:
            confs = {**_CONFS, **options.confs}
            return group.add(
                EngineProcess(one.workload, engine, work, confs, one.values, environment=environment, ways=ways)
            )

        ours = {name: options.options_of(mode, memory_bytes) for name, mode in modes.items() if mode.engine == OURS}
        session = process(OURS, ours) if ours else None
        runners = {
            name: Runner(mode, session, name)
            if session is not None and name in ours
            else Runner(mode, process(mode.engine), ONLY)
            for name, mode in modes.items()
        }
        group.wait_ready()
        for name, runner in runners.items():
            runner.ask("start", sink=options.sink, out=str(work / "rows" / name))
        fill = -(-one.fill_events // one.fill_rows)
        for number in range(fill + options.warmup):
            progress("filling the state" if number < fill else "warming up", 1 + max(0, number - fill))
            _batch_each(runners, make(1)[0])
        for number in range(options.turns):
            progress("measuring", 1 + options.warmup + number * options.turn)
            paths = make(options.turn)
            for name in in_turns(tuple(runners), number):
                os.sync()
                runners[name].batches += runners[name].turn(paths)[-options.counted :]
        checked = None
        if options.check:
            progress("checking", 1 + options.warmup + options.turns * options.turn)
            further = make(_FURTHER)
            checked = _check(one, runners, further, files, work / "answers", options.seed)
        return Measured(
            case=one,
            batches={name: runner.batches for name, runner in runners.items()},
            memory_bytes=memory_bytes,
            cores=measure.cores(),
            cached_row_bytes={name: runner.cached_row_bytes or 0.0 for name, runner in runners.items()},
            rows_checked=checked,
            confs={name: runner.engine.confs for name, runner in runners.items()},
        )


def _feed(workload: Workload, one: Case, options: PrefetchOptions) -> Iterator[pa.Table]:
    """The batches that fill the state, then those that are measured, without end in sight."""
    (name,) = workload.feeds
    measured = (options.warmup + options.turns * options.turn + _FURTHER) * one.rows
    filling = Settings(one.fill_events, one.fill_rows, options.seed, {**one.values, **one.filling})
    going_on = Settings(measured, one.rows, options.seed, dict(one.values))
    for batch in chain(workload.inputs(filling), workload.inputs(going_on)):
        yield batch[name]


def _check(
    one: Case, runners: Mapping[str, Runner], further: list[str], files: list[Path], out: Path, seed: int
) -> int:
    """Side by side: nothing is measured any more. Gives how many rows were compared."""
    for name, runner in runners.items():
        runner.ask("stop")
        runner.ask("start", sink="parquet", out=str(out / name))
    for path in further:
        _batch_each(runners, path)
    for runner in runners.values():
        runner.ask("stop")
    checked = 0
    for name, runner in runners.items():
        output, engine = read_output(out / name), runner.mode.engine
        if one.query is not None:
            checked += check_further_rows(one.query, engine, output, files, len(further), one.values)
        else:
            checked += _check_appended(one, f"{one.name} on {name}", engine, output, files, len(further), seed)
    return checked


def _check_appended(
    one: Case, name: str, engine: str, output: pa.Table | None, files: list[Path], further: int, seed: int
) -> int:
    """The rows of the last batches are the answer so far without the answer before; Spark says them a batch later."""
    workload = registry.workload(one.workload)
    oracle = workload.oracle_of(engine)
    assert oracle is not None
    (feed,) = workload.feeds
    settings = Settings(one.rows, one.rows, seed, dict(one.values))
    lag = 0 if engine == OURS else 1
    now, then = (oracle({feed: seen[: len(seen) - lag]}, settings) for seen in (files, files[:-further]))
    expected = without(now, then)
    found = expected.slice(0, 0) if output is None else workload.final(output).select(expected.column_names)
    check_rows(name, found.cast(expected.schema), expected)
    return int(expected.num_rows)


def _batch_each(runners: Mapping[str, Runner], path: str) -> None:
    for runner in runners.values():
        runner.ask("show", file=path)
    for runner in runners.values():
        runner.finish_batch()


def _result(options: PrefetchOptions, measured: Mapping[str, Measured]) -> dict[str, Any]:
    found = result(measured)
    times = series(measured.values())
    if options.all_in_cache:
        found["all_in_cache_ratio"] = {
            name: measure.ratio(*(percentiles(one.batches[mode], "ms")["p50"] for mode in ("on", "off")))
            for name, one in measured.items()
        }
        found["all_in_cache_hints"] = {
            name: sum(each["hints"] for each in one.batches["on"]) for name, one in measured.items()
        }
    if options.sweeps:
        found["prefetch_sweeps"] = _swept(options, measured)
    return {
        **found,
        "ratios": {
            **{f"{name} wait p99.9, LRU": each for name, each in found["wait_p999_ratio_lru"].items()},
            **{f"{name} wait p99.9, async-io": each for name, each in found["wait_p999_ratio_async_io"].items()},
            **{f"{name} throughput": each for name, each in found["throughput_ratio"].items()},
            **{f"{name} on/off": each for name, each in found.get("all_in_cache_ratio", {}).items()},
        },
        "median_ms": {name: measure.median(each) for name, each in times.items()},
        "p99_ms": {name: measure.percentile(each, 99) for name, each in times.items()},
        "series_ms": times,
        "workloads": ",".join(options.workloads),
        "modes": ",".join(options.chosen),
        "memory_bytes": options.memory_bytes,
        "read_ms": options.read_ms,
        "read_depth": {name: options.depth_of(one.case) for name, one in measured.items()},
        "jvm": {**_CONFS, **options.confs}["spark.driver.extraJavaOptions"],
        "all_in_cache": options.all_in_cache,
        "batches": options.turns * options.counted,
        "given": " ".join(options.given),
        **facts(options, "turn", "warmup", "sink", "seed", "commit"),
        "values": {
            name: {**one.case.values, "rows": one.case.rows, "memory_bytes": one.memory_bytes}
            for name, one in measured.items()
        },
        "confs": next(iter(measured.values())).confs,
    }


def _swept(options: PrefetchOptions, measured: Mapping[str, Measured]) -> dict[str, Any]:
    """Sweep to workload to value to mode to a few numbers."""
    found: dict[str, Any] = {}
    for sweep, values in options.sweeps.items():
        of: dict[str, dict[str, Any]] = found.setdefault(sweep, {})
        for name in options.workloads:
            for value in values:
                one = measured[f"{name} {sweep} {value}"]
                of.setdefault(name, {})[value] = {
                    mode: {
                        **{f"wait_{q}_ms": ms for q, ms in percentiles(batches, "wait_ms").items()},
                        "hit_ratio": hit_ratio(batches),
                        "rows_per_s": rows_per_s(batches),
                    }
                    for mode, batches in one.batches.items()
                    if batches[0]["operators"]
                }
    return found
