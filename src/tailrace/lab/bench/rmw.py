"""``tailrace bench rmw``: read-modify-write of keyed state, Tailrace against Spark's stores and two stateless floors.

All engines live at the same time, one process each, and take turns of a few batches, the same for each, in an order
(``turns``) by which a slow minute of the machine, and what one leaves to the next, hits all alike. The first batch of a
turn is not counted: a stream runs on, and an engine that has stood still while others ran finds its memory in no cache.
Before each turn the disk comes to rest: who syncs what it writes, as Tailrace does and Spark does not, would pay for
what the one before left. Every key exists before measuring begins. At the end every exact engine is restarted from its
checkpoint, made to tell the aggregates of every key, and compared with an answer computed from the files alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tailrace.lab.bench import measure
from tailrace.lab.bench.turns import in_turns
from tailrace.lab.engines.process import EngineError, EngineProcess
from tailrace.lab.registry import OURS, Bench, Ratio, Value, register
from tailrace.lab.workloads import keyed_sums
from tailrace.lab.workloads.events import KeyedEvents, keyed_answer, write_batch

ALL_ENGINES = ("spark-rocksdb", "spark-memory", "tailrace", "shuffle-floor", "transfer-floor")
FLOORS = ("shuffle-floor", "transfer-floor")
ONE_PIECE_A_CORE = {
    "spark.sql.files.openCostInBytes": "0",
    "spark.sql.files.maxPartitionNum": str(measure.cores()),
}
"""A file is cut by its bytes alone: one of equal row groups, one for each core, gives each core one of them.

And no more: of an odd number of bytes, one is left for a task that finds nothing in it, and that others wait for.
"""

Report = Callable[[str, int, int], None]
"""Told (what is going on, steps done, steps in all)."""


register(
    Bench(
        "rmw",
        "Sum, count and max per key over keys that all exist already: read-modify-write of keyed state.",
        (
            Ratio("speedup_rocksdb", "as fast as Spark's RocksDB store", "spark-rocksdb", OURS),
            Ratio("speedup_memory", "as fast as Spark's in-memory store", "spark-memory", OURS),
            Ratio("over_shuffle_floor", "the shuffle floor", OURS, "shuffle-floor", more_is_better=False),
            Ratio("over_transfer_floor", "the transfer floor", OURS, "transfer-floor", more_is_better=False),
        ),
    )
)


@dataclass(frozen=True)
class RmwOptions:
    rows: int = 500_000
    keys: int = 3_000_000
    batches: int = 20
    warmup: int = 12
    engines: tuple[str, ...] = ALL_ENGINES
    seed: int = 1
    check: bool = True
    confs: dict[str, str] = field(default_factory=dict)
    commit: str = "async"  # of Tailrace
    turn: int = 3  # batches that an engine is given before the next one's turn; where several, the first is not counted

    @property
    def counted(self) -> int:
        """Batches of a turn that are counted."""
        return max(1, self.turn - 1)

    @property
    def turns(self) -> tuple[int, int]:
        """Turns before measuring begins, and turns measured."""
        return -(-self.warmup // self.turn), -(-self.batches // self.counted)


@contextmanager
def engines_running(
    names: tuple[str, ...],
    work: Path,
    confs: dict[str, str],
    sink: str = "noop",
    workload: str = keyed_sums.NAME,
    values: Mapping[str, Value] | None = None,
    commit: str = "async",
) -> Iterator[dict[str, EngineProcess]]:
    """The engines, each with its query started; all are ended on the way out, whatever happened."""
    running: dict[str, EngineProcess] = {}
    try:
        for name in names:
            running[name] = EngineProcess(workload, name, work, confs, values, {"commit": commit})
        for engine in running.values():
            engine.wait_ready()
        for engine in running.values():
            engine.ask("start", sink=sink, out=str(engine.work / "rows"))
        yield running
    except BaseException:
        for engine in running.values():
            engine.kill()  # a failed or interrupted run has nothing to wait for
        raise
    finally:
        for engine in running.values():
            engine.close()


def run_rmw(options: RmwOptions, work: Path, report: Report) -> dict[str, Any]:
    events = KeyedEvents(options.keys, options.rows, options.seed)
    files: list[Path] = []
    timings: dict[str, list[dict[str, Any]]] = {name: [] for name in options.engines}
    warm, measured_turns = options.turns
    steps = events.prefill_batches + warm + measured_turns + options.check

    def make(table: Any) -> Path:
        files.append(write_batch(table, work / "events", f"{len(files):06d}", measure.cores()))
        return files[-1]

    report("starting the engines", 0, steps)
    confs = {**ONE_PIECE_A_CORE, **options.confs}
    with engines_running(options.engines, work, confs, commit=options.commit) as engines:
        for number in range(events.prefill_batches):
            report("filling the state", number, steps)
            path = make(events.prefill(number))
            for name in options.engines:
                engines[name].ask("batch", file=str(path))
        done = events.prefill_batches
        for number in range(warm + measured_turns):
            report("warming up" if number < warm else "measuring", done + number, steps)
            paths = [make(events.batch(number * options.turn + i)) for i in range(options.turn)]
            for name in in_turns(options.engines, number):
                os.sync()
                series = [engines[name].ask("batch", file=str(path)) for path in paths]
                if number >= warm:
                    timings[name] += series[-options.counted :]
        if options.check:
            report("checking every key", steps - 1, steps)
            make(events.every_key())
            check_answers(engines, files, work)
    report("done", steps, steps)
    return {**_result(options, timings), "confs": {name: engine.confs for name, engine in engines.items()}}


def check_answers(engines: dict[str, EngineProcess], files: list[Path], work: Path) -> None:
    """Every exact engine goes on from its checkpoint with the last file, which names every key, and tells its rows."""
    expected = keyed_answer(files)
    for name, engine in engines.items():
        if name in FLOORS:
            continue
        out = work / "answers" / name
        engine.ask("stop")
        engine.ask("start", sink="parquet", out=str(out))
        epoch = engine.ask("batch", file=str(files[-1]))["epoch"]
        rows = pq.read_table(out / f"epoch={epoch}", columns=["key", "total", "n", "top"], partitioning=None)
        found = rows.sort_by("key").cast(expected.schema)
        if not found.equals(expected):
            raise EngineError(
                f"{name} gives a wrong answer: {found.num_rows:,} keys, expected {expected.num_rows:,}; "
                f"run again with --work to keep its rows"
            )


def _result(options: RmwOptions, measured: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    medians = {name: measure.median([batch["ms"] for batch in series]) for name, series in measured.items()}
    result: dict[str, Any] = {"bench": "rmw"}
    mine = medians.get("tailrace")
    if mine is not None:
        for ratio, peer in (("speedup_rocksdb", "spark-rocksdb"), ("speedup_memory", "spark-memory")):
            if peer in medians:
                result[ratio] = measure.ratio(medians[peer], mine)
        for ratio, floor in (("over_shuffle_floor", "shuffle-floor"), ("over_transfer_floor", "transfer-floor")):
            if floor in medians:
                result[ratio] = measure.ratio(mine, medians[floor])
    return {
        **result,
        "median_ms": medians,
        "spread": {name: measure.spread([batch["ms"] for batch in series]) for name, series in measured.items()},
        "series_ms": {name: [batch["ms"] for batch in series] for name, series in measured.items()},
        "durations_ms": {name: median_durations(series, "durations_ms") for name, series in measured.items()},
        "tailrace_durations_ms": median_durations(measured.get("tailrace", []), "own_ms"),
        "rows": options.rows,
        "keys": options.keys,
        "batches": options.turns[1] * options.counted,
        "turn": options.turn,
        "warmup": options.warmup,
        "seed": options.seed,
        "commit": options.commit,
        "answers_equal": True if options.check else None,
        "machine": measure.machine(),
        "versions": measure.versions(),
    }


def median_durations(series: list[dict[str, Any]], kind: str) -> dict[str, float]:
    """The median of each named part of a batch's time; a part that a batch does not name took none of its."""
    names = {name for batch in series for name in batch[kind]}
    return {name: measure.median([batch[kind].get(name, 0) for batch in series]) for name in sorted(names)}
