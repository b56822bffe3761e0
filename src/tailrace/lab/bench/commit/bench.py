"""``tailrace bench commit``: what a commit to a slow store costs a batch, on Linear Road and Cluster Monitoring.

All targets of a query live at the same time and take turns, a batch each in every round, in an order by which a slow
moment of the machine hits all alike. So a target's batches are seconds apart, as with the trigger of MiSA, and a commit
behind a sink has that long; how far apart they were is in the result. With ``trigger_s`` a round takes at least that.
With ``turn`` above one, a target's batches follow each other at once, and the first is not counted.

Every batch is the same three seconds of records for each target, however long its batches take: an engine that falls
behind is not given larger ones. Only ``buffered`` decides by itself. A batch's time is Spark's ``triggerExecution``
without ``latestOffset`` and ``getBatch``: looking for new files, and writing down in the checkpoint which were found,
is the price of the file source, which the paper's Kafka source does not have. The whole time is in the record too.

At the end every target goes on from its checkpoint with a few more batches, and its rows must be the oracle's.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from tailrace.lab import registry
from tailrace.lab.bench import measure
from tailrace.lab.bench.commit.buffering import Buffering
from tailrace.lab.bench.commit.numbers import Measured, result
from tailrace.lab.bench.commit.targets import TARGETS, SlowStore, Target, slow_store
from tailrace.lab.bench.comparison import NO_EMPTY_BATCHES, Report, facts, in_turns
from tailrace.lab.bench.options import CommitOptions
from tailrace.lab.engines.group import EngineGroup, ask_all
from tailrace.lab.engines.process import EngineProcess
from tailrace.lab.registry import OURS, Bench, UnknownNameError, Value, register
from tailrace.lab.run import read_output
from tailrace.lab.run_check import check_rows
from tailrace.lab.workloads.cluster_monitoring.workloads import CM1, CM2
from tailrace.lab.workloads.events import write_batch
from tailrace.lab.workloads.linear_road.workloads import LR2, LR4
from tailrace.lab.workloads.traffic import records as traffic
from tailrace.lab.workloads.traffic.workload import StreamQuery, final_rows, further_answer

QUERIES = {query.name: query for query in (LR2, LR4, CM1, CM2)}

_FURTHER = 4
"""Batches whose rows are checked: in twelve seconds, windows of every query end."""


_OF_THE_SOURCE = ("latestOffset", "getBatch")
_DRAWN = 4
"""Epochs in the picture of a target's timeline."""


register(
    Bench(
        "commit",
        "What a commit to a slow store costs a batch, on Linear Road and Cluster Monitoring. A ratio of p99 is that of "
        "Spark's RocksDB store over Tailrace's asynchronous commit, one of throughput the other way round; series hold "
        "the batches of all queries in the order in which they ran.",
        (),  # two ratios a query, under its name
    )
)


def values_of(options: CommitOptions, query: str) -> dict[str, Value]:
    """A parameter that only the other family of queries has is left out."""
    workload = registry.workload(query)
    known = {name for each in options.queries for name in registry.workload(each).parameters}
    mine = [text for text in options.given if text.partition("=")[0] in workload.parameters]
    workload.values(text for text in options.given if text.partition("=")[0] not in known)  # raises where there is one
    return {**workload.values(mine), "rate": options.rate}


def with_targets(options: CommitOptions) -> CommitOptions:
    """The options with all targets that their store can serve, where none are named.

    Raises where something is unknown or cannot be had, before anything is started.
    """
    able = tuple(name for name, target in TARGETS.items() if options.store == "proxy" or not target.remote_logs)
    options = replace(options, targets=options.targets or able)
    for what, names, known in (("query", options.queries, QUERIES), ("target", options.targets, TARGETS)):
        for name in names:
            if name not in known:
                raise UnknownNameError(f"no {what} is called {name!r}; there are {', '.join(known)}")
    foreign = [name for name in options.targets if name not in able]
    if foreign:
        raise UnknownNameError(f"{foreign[0]} needs a store that Spark can write to: --store proxy, or leave it out")
    values_of(options, options.queries[0])
    return options


def run_commit(options: CommitOptions, work: Path, report: Report) -> dict[str, Any]:
    options = with_targets(options)
    steps = options.warmup + options.batches + 1
    measured: dict[str, Measured] = {}
    with slow_store(options.store, work, options.latency_ms, options.mb_per_s) as store:
        for number, name in enumerate(options.queries):

            def progress(what: str, done: int, before: int = number * steps, query: str = name) -> None:
                report(f"{query}: {what}", before + done, steps * len(options.queries))

            measured[name] = _run_query(QUERIES[name], options, store, work / name, progress)
            shutil.rmtree(work / name)
    report("done", steps * len(options.queries), steps * len(options.queries))
    return {
        **result(measured),
        "given": " ".join(options.given),
        "queries": ",".join(options.queries),
        **facts(options, "rate", "batches", "warmup", "batch_s", "store", "latency_ms", "mb_per_s", "deadline_s"),
        **{name: getattr(options, name) for name in ("trigger_s", "turn", "gap_s", "sink", "seed")},
        "confs": next(iter(measured.values())).confs,
    }


class Stream:
    """A query's traffic, and files of any stretch of it."""

    def __init__(self, query: StreamQuery, values: Mapping[str, Value], seed: int, folder: Path) -> None:
        family = query.family
        self._seconds = traffic.seconds(family.source(values, seed), family.layout, values, seed)
        self._made: list[pa.Table] = []
        self._folder = folder
        self._files: dict[tuple[int, int], Path] = {}

    def rows(self, first: int, until: int) -> int:
        self._make(until)
        return sum(table.num_rows for table in self._made[first:until])

    def file(self, first: int, until: int) -> Path:
        if (first, until) not in self._files:
            self._make(until)
            table = pa.concat_tables(self._made[first:until]).combine_chunks()
            name = f"{first:06d}-{until:06d}"
            path = write_batch(table, self._folder, name, measure.cores())
            os.utime(path, (traffic.START_S + until,) * 2)  # Spark takes files in this order
            self._files[first, until] = path
        return self._files[first, until]

    def _make(self, until: int) -> None:
        self._made += islice(self._seconds, max(0, until - len(self._made)))


class Runner:
    """One target of one query, and where it is in the traffic."""

    def __init__(self, target: Target, engine: EngineProcess, stream: Stream, options: CommitOptions) -> None:
        self.target = target
        self.engine = engine
        self.files: list[Path] = []
        self.batches: list[dict[str, Any]] = []
        self._stream = stream
        self._batch_s = options.batch_s
        self._second = 0
        self._buffering = Buffering(options.deadline_s, stream.rows) if target.buffers else None
        self._rows = 0

    def send(self) -> None:
        """Gives the engine its next batch; ``answer`` waits for it."""
        self.engine.send("batch", file=self._next())

    def answer(self) -> dict[str, Any]:
        return self._measured(self.engine.answer(), self._rows)

    def turn(self, batches: int) -> list[dict[str, Any]]:
        """So many batches. Where the engine need not be asked how long one took, it gets all at once, so that each
        follows the one before without a pause."""
        if self._buffering is not None or batches == 1:
            return [self._measured(self.engine.ask("batch", file=self._next()), self._rows) for _ in range(batches)]
        files, rows = zip(*((self._next(), self._rows) for _ in range(batches)), strict=True)
        reports = self.engine.ask("several", files=files)["batches"]
        return [self._measured(each, count) for each, count in zip(reports, rows, strict=True)]

    def measure_from_here(self) -> None:
        if self._buffering is not None:
            self._buffering.forget()

    def _next(self) -> str:
        if self._buffering is not None:
            first, until = self._buffering.next_batch()
        else:
            first, until = self._second, self._second + self._batch_s
        self._second, self._rows = until, self._stream.rows(first, until)
        self.files.append(self._stream.file(first, until))
        return str(self.files[-1])

    def _measured(self, report: dict[str, Any], rows: int) -> dict[str, Any]:
        ms = max(1.0, report["ms"] - sum(report["durations_ms"].get(part, 0) for part in _OF_THE_SOURCE))
        if self._buffering is not None:
            self._buffering.done(rows, ms / 1e3)
        return {**report, "trigger_ms": report["ms"], "ms": ms, "rows": rows}


def _run_query(
    query: StreamQuery, options: CommitOptions, store: SlowStore, work: Path, progress: Callable[[str, int], None]
) -> Measured:
    values = values_of(options, query.name)
    stream = Stream(query, values, options.seed, work / "events")
    confs = {**NO_EMPTY_BATCHES, **options.confs}
    progress("starting the engines", 0)
    with EngineGroup() as group:
        runners = {}
        for name in options.targets:
            engine = group.add(store.start(TARGETS[name], query.name, work, confs, values))
            runners[name] = Runner(TARGETS[name], engine, stream, options)
        group.wait_ready()
        ask_all(_engines(runners), "start", lambda name: {"sink": options.sink, "out": str(work / name / "rows")})
        for number in range(options.warmup):
            progress("warming up", number)
            _batch_each(runners)
        for runner in runners.values():
            runner.measure_from_here()
        began = time.perf_counter()
        cpu = {name: runner.engine.cpu_s() for name, runner in runners.items()}
        _measure(runners, options, store, lambda number: progress("measuring", options.warmup + number))
        wall_s = time.perf_counter() - began
        cpu_s = {name: _less(runner.engine.cpu_s(), cpu[name]) for name, runner in runners.items()}
        memory = {name: runner.engine.memory_bytes() for name, runner in runners.items()}
        timelines = {name: _timeline(runner) for name, runner in runners.items() if runner.target.engine == OURS}
        checked = None
        if options.check:
            progress("checking", options.warmup + options.batches)
            checked = _check(query, runners, values, work / "answers")
        return Measured(
            batches={name: runner.batches for name, runner in runners.items()},
            wall_s=wall_s,
            cpu_s=cpu_s,
            memory_bytes=memory,
            timelines=timelines,
            rows_checked=checked,
            confs={name: runner.engine.confs for name, runner in runners.items()},
        )


def _measure(
    runners: Mapping[str, Runner], options: CommitOptions, store: SlowStore, progress: Callable[[int], None]
) -> None:
    """Rounds: each target in turn is given a batch, or as many as its turn has."""
    due = time.perf_counter()
    for number in range(options.batches):
        progress(number)
        for name in in_turns(tuple(runners), number):
            os.sync()  # what others left to be written is not this one's to wait for
            time.sleep(options.gap_s)
            before, began = store.counts(), time.perf_counter()
            reports = runners[name].turn(options.turn)
            after = store.counts()
            asked = {
                f"store_{what}": (after[what] - before[what]) / len(reports)
                for what in ("requests", "bytes_up", "bytes_down")
                if what in after
            }
            kept = reports[1:] or reports
            runners[name].batches += [{**each, **asked, "began_s": began} for each in kept]
        due += options.trigger_s
        time.sleep(max(0.0, due - time.perf_counter()))


def _timeline(runner: Runner) -> list[Any]:
    """Of a few more batches, one right after the other: so the picture shows what overlaps."""
    runner.turn(_DRAWN)
    steps: list[Any] = runner.engine.ask("timeline", epochs=_DRAWN)["steps"]
    return steps


def _check(query: StreamQuery, runners: Mapping[str, Runner], values: Mapping[str, Value], out: Path) -> int:
    """Side by side: nothing is measured any more. Gives how many rows were compared."""
    ask_all(_engines(runners), "stop")
    ask_all(_engines(runners), "start", lambda name: {"sink": "parquet", "out": str(out / name)})
    for _ in range(_FURTHER):
        _batch_each(runners)
    ask_all(_engines(runners), "stop")
    checked = 0
    for name, runner in runners.items():
        # Spark closes windows by what was seen before a batch.
        lag = 0 if runner.target.engine == OURS else 1
        expected = further_answer(query, runner.files, _FURTHER, values, lag)
        rows = read_output(out / name)
        found = final_rows(query, rows) if rows is not None else expected.slice(0, 0)
        check_rows(f"{query.name} on {name}", found, expected)
        checked += expected.num_rows
    return checked


def _engines(runners: Mapping[str, Runner]) -> dict[str, EngineProcess]:
    return {name: runner.engine for name, runner in runners.items()}


def _batch_each(runners: Mapping[str, Runner]) -> None:
    """A batch for everyone, side by side."""
    for runner in runners.values():
        runner.send()
    for runner in runners.values():
        runner.answer()


def _less(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before
