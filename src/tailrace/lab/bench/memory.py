"""``tailrace bench memory``: what a query pays whose state is ten times its memory, and whether that grows with state.

Three runs of ``keyed-sums`` take turns, all Tailrace: *hot*, with memory for everything; *tenth*, the same keys with a
tenth of the memory that they take; *large*, ten times the keys and ten times that memory. Batches are of one size and
name keys at random, so that nine in ten of those of *tenth* and *large* are on disk. A batch of *large* should cost
what one of *tenth* does: then ten times the state with ten times the input costs ten times as much. The servers'
largest resident memory is read from the system, and compared with what docs/explanation/stores.md states; answers are
checked for every key.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tailrace.lab.bench import comparison, measure
from tailrace.lab.bench.options import MemoryOptions
from tailrace.lab.bench.rmw import check_answers, turns
from tailrace.lab.engines.group import EngineGroup
from tailrace.lab.engines.process import EngineProcess
from tailrace.lab.registry import OURS, Bench, Ratio, register
from tailrace.lab.workloads import keyed_sums
from tailrace.lab.workloads.events import KeyedEvents, write_batch

HOT, TENTH, LARGE = "hot", "tenth", "large"
TIMES = 10
_KEY_BYTES = 90
"""What a key takes in a table, about: its record, its place in the index."""
_SERVER = "tailrace.server.process.main"
STATED_BYTES = 350 << 20
"""What docs/explanation/stores.md states for a server beyond its budget, with such epochs and keys, whatever the
budget is."""


register(
    Bench(
        "memory",
        "State of ten times its memory: keyed sums with all state in memory, with a tenth of it, and ten times larger.",
        (
            Ratio("slow_down", "with all state in memory", "tenth", "hot", more_is_better=False),
            Ratio("ten_times_larger", "a tenth of the state", "large", "tenth", more_is_better=False),
        ),
    )
)


def budgets(keys: int) -> dict[str, int]:
    """Bytes of memory by run."""
    state = keys * _KEY_BYTES
    return {HOT: 4 * state + (64 << 20), TENTH: max(1 << 20, state // TIMES), LARGE: max(1 << 20, state)}


def _keys_of(run: str, options: MemoryOptions) -> int:
    return options.keys * TIMES if run == LARGE else options.keys


def run_memory(options: MemoryOptions, work: Path, report: comparison.Report) -> dict[str, Any]:
    memory = budgets(options.keys)
    runs = tuple(memory)
    fill = 5 * options.rows  # filling is no part of what is measured
    streams = {name: KeyedEvents(_keys_of(name, options), options.rows, options.seed) for name in runs}
    fills = {name: KeyedEvents(_keys_of(name, options), fill, options.seed) for name in runs}
    files: dict[str, list[Path]] = {name: [] for name in runs}
    timings: comparison.Batches = {name: [] for name in runs}
    warm, measured = turns(options)
    steps = sum(each.prefill_batches for each in fills.values()) + warm + measured + options.check

    def make(name: str, table: Any) -> Path:
        files[name].append(write_batch(table, work / "events" / name, f"{len(files[name]):06d}", measure.cores()))
        return files[name][-1]

    done = 0
    report("starting the engines", 0, steps)
    confs = {**comparison.ONE_PIECE_A_CORE, **options.confs}
    with EngineGroup() as group:
        engines = {}
        for name in runs:
            writer = {"commit": options.commit, "memory": f"{memory[name]}B"}
            engines[name] = group.add(EngineProcess(keyed_sums.NAME, OURS, work, confs, None, writer, name=name))
        comparison.start_queries(group, engines, "noop")
        for name in runs:
            for number in range(fills[name].prefill_batches):
                report(f"filling the state of {name}", done, steps)
                engines[name].ask("batch", file=str(make(name, fills[name].prefill(number))))
                done += 1
        for number in range(warm + measured):
            report("warming up" if number < warm else "measuring", done + number, steps)
            for name in comparison.in_turns(runs, number):
                paths = [make(name, streams[name].batch(number * options.turn + i)) for i in range(options.turn)]
                os.sync()
                series = [engines[name].ask("batch", file=str(path)) for path in paths]
                if number >= warm:
                    timings[name] += series[-comparison.counted(options.turn) :]
        peaks = {name: engine.peak_memory_bytes(_SERVER) for name, engine in engines.items()}
        if options.check:
            report("checking every key", steps - 1, steps)
            for name in runs:
                make(name, streams[name].every_key())
                check_answers({name: engines[name]}, files[name], work)
    report("done", steps, steps)
    found = _result(options, timings, peaks)
    return {**found, "confs": {name: engine.confs for name, engine in engines.items()}}


def _result(options: MemoryOptions, timings: comparison.Batches, peaks: dict[str, int | None]) -> dict[str, Any]:
    series, memory = comparison.series_of(timings), budgets(options.keys)
    medians = comparison.each(measure.median, series)
    return {
        "bench": "memory",
        "slow_down": measure.ratio(medians[TENTH], medians[HOT]),
        "ten_times_larger": measure.ratio(medians[LARGE], medians[TENTH]),
        "median_ms": medians,
        "spread": comparison.each(measure.spread, series),
        "series_ms": series,
        "memory_bytes": memory,
        "state_rows": {name: batches[-1]["state_rows"] for name, batches in timings.items()},
        "state_over_memory": {
            name: round(_keys_of(name, options) * _KEY_BYTES / budget, 2) for name, budget in memory.items()
        },
        "server_peak_bytes": peaks,
        "beyond_budget_bytes": {name: None if peak is None else peak - memory[name] for name, peak in peaks.items()},
        "stated_bytes": STATED_BYTES,
        "within_stated": _within(peaks, memory),
        "batches": len(timings[HOT]),
        **comparison.facts(options, "keys", "rows", "warmup", "seed", "commit"),
    }


def _within(peaks: dict[str, int | None], memory: dict[str, int]) -> bool | None:
    """Whether no server took more beyond its budget than is stated; None where the system does not say."""
    known = [peak - memory[name] for name, peak in peaks.items() if peak is not None]
    return max(known) <= STATED_BYTES if len(known) == len(peaks) else None
