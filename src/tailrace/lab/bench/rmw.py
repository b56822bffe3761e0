"""``tailrace bench rmw``: read-modify-write of keyed state, Tailrace against Spark's stores and two stateless floors.

All engines live at the same time, one process each, and take turns of a few batches, the same batches for each. The
order of turns (``comparison``) spreads a slow minute of the machine, and what one engine leaves to the next, over all
of them. The first batch of a turn is not counted: a stream runs on, while an engine that has stood still finds its
memory in no cache. Before each turn the disk is synced: an engine that syncs what it writes, as Tailrace does and Spark
does not, would otherwise wait for what the one before it wrote. Every key exists before measuring begins. At the end
every exact engine is restarted from its checkpoint and made to output the aggregates of every key, which are compared
with an answer computed from the files alone.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tailrace.lab.bench import comparison, measure
from tailrace.lab.bench.options import FLOORS, MemoryOptions, RmwOptions
from tailrace.lab.engines.process import EngineError, EngineProcess
from tailrace.lab.registry import OURS, Bench, Ratio, register
from tailrace.lab.workloads.events import KeyedEvents, keyed_answer, write_batch

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


def run_rmw(options: RmwOptions, work: Path, report: comparison.Report) -> dict[str, Any]:
    events = KeyedEvents(options.keys, options.rows, options.seed)
    files: list[Path] = []
    timings: comparison.Batches = {name: [] for name in options.engines}
    warm, measured_turns = turns(options)
    steps = events.prefill_batches + warm + measured_turns + options.check

    def make(table: Any) -> Path:
        files.append(write_batch(table, work / "events", f"{len(files):06d}", measure.cores()))
        return files[-1]

    report("starting the engines", 0, steps)
    with comparison.engines_running(options, work, comparison.ONE_PIECE_A_CORE) as engines:
        for number in range(events.prefill_batches):
            report("filling the state", number, steps)
            path = make(events.prefill(number))
            for name in options.engines:
                engines[name].ask("batch", file=str(path))
        done = events.prefill_batches
        for number in range(warm + measured_turns):
            report("warming up" if number < warm else "measuring", done + number, steps)
            paths = [make(events.batch(number * options.turn + i)) for i in range(options.turn)]
            for name in comparison.in_turns(options.engines, number):
                os.sync()
                series = [engines[name].ask("batch", file=str(path)) for path in paths]
                if number >= warm:
                    timings[name] += series[-comparison.counted(options.turn) :]
        if options.check:
            report("checking every key", steps - 1, steps)
            make(events.every_key())
            check_answers(engines, files, work)
    report("done", steps, steps)
    return {**_result(options, timings), "confs": {name: engine.confs for name, engine in engines.items()}}


def turns(options: RmwOptions | MemoryOptions) -> tuple[int, int]:
    """Turns before measuring begins, and turns measured."""
    return -(-options.warmup // options.turn), -(-options.batches // comparison.counted(options.turn))


def check_answers(engines: dict[str, EngineProcess], files: list[Path], work: Path) -> None:
    """Every exact engine goes on from its checkpoint with the last file, which names every key; rows are compared."""
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


def _result(options: RmwOptions, measured: comparison.Batches) -> dict[str, Any]:
    series = comparison.series_of(measured)
    medians = comparison.each(measure.median, series)
    result: dict[str, Any] = {"bench": "rmw"}
    mine = medians.get(OURS)
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
        "spread": comparison.each(measure.spread, series),
        "series_ms": series,
        "durations_ms": {
            name: comparison.median_durations(batches, "durations_ms") for name, batches in measured.items()
        },
        "tailrace_durations_ms": comparison.median_durations(measured.get(OURS, []), "own_ms"),
        "batches": turns(options)[1] * comparison.counted(options.turn),
        **comparison.facts(options, "rows", "keys", "turn", "warmup", "seed", "commit"),
    }
