"""``tailrace gadget bench``: every workload on every store, one access and one micro-batch at a time.

Stores take turns, round by round (`comparison.in_turns`), each time on a fresh store, and medians count: what the
machine does besides then meets all of them. Every answer of every pass is checked against the trace. A pass has the
same accesses for all stores, but ends early where it takes longer than ``seconds``: its beginning is then what counts.

Of Tailrace's stores, all three do every workload; ``chosen`` is the one that the plan of a query would take.

Memory that is freed stays with the process while it measures (``memory_kept``). Otherwise the C library gives it back
to the system now and then, and whichever store comes next pays for new pages: more than stores differ by.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tailrace.errors import TailraceError
from tailrace.lab.bench import measure
from tailrace.lab.bench.comparison import Report, facts, in_turns
from tailrace.lab.gadget.generate import trace_of
from tailrace.lab.gadget.replay.prepared import prepare
from tailrace.lab.gadget.replay.replay import BATCH, How, Latencies, Pass, harness_ns, latencies, opened, throughput
from tailrace.lab.gadget.stores.contract import MEMORY_BYTES, Store, StoreUnavailableError
from tailrace.lab.gadget.stores.registry import STORES, TAILRACE, store_class
from tailrace.lab.gadget.traces.trace import Operation, Trace
from tailrace.lab.gadget.workloads import WORKLOADS, of_one_key, workload
from tailrace.testing.bench.memory import memory_kept

MODES = ("batch", "scalar")
OURS = tuple(one.name for one in TAILRACE)
_WINDOWS = ("tumbling-holistic", "sliding-holistic", "tumbling-join", "sliding-join")
_LISTS = ("session-holistic", "interval-join", "continuous-join")


@dataclass(frozen=True)
class GadgetOptions:
    workloads: tuple[str, ...] = tuple(WORKLOADS)
    stores: tuple[str, ...] = tuple(STORES)
    source: str = "borg"
    accesses: int = 300_000
    """Of a batch pass."""
    scalar_accesses: int = 20_000
    batch: int = BATCH
    value_bytes: int = 256
    """What the paper's replays write."""
    memory_bytes: int = MEMORY_BYTES
    rounds: int = 3
    seconds: float = 1.0
    """A pass is ended after so many."""
    seed: int = 1

    def how(self, mode: str) -> How:
        batch = self.batch if mode == "batch" else None
        return How(batch, self.memory_bytes, seconds=self.seconds if mode == "batch" else self.seconds / 3)


@dataclass
class _Cell:
    """What a store did on a workload in one mode."""

    passes: list[Pass] = field(default_factory=list)
    latency: Latencies = field(default_factory=lambda: Latencies({}))

    @property
    def ops_per_s(self) -> int:
        return round(float(np.median([one.ops_per_s for one in self.passes])))


def chosen(name: str) -> str:
    """The store of Tailrace's that the plan takes for such an operator (docs/explanation/windows.md,
    docs/explanation/joins.md)."""
    name = of_one_key(name)
    if name in _WINDOWS:
        return "tailrace-aar"
    return "tailrace-aur" if name in _LISTS else "tailrace-rmw"


def run_gadget(options: GadgetOptions, work: Path, report: Report) -> dict[str, Any]:
    with memory_kept():
        return _measured(options, work, report)


def _measured(options: GadgetOptions, work: Path, report: Report) -> dict[str, Any]:
    for name in options.workloads:
        workload(name)
    stores, absent = _there([store_class(name) for name in options.stores], work)
    if not stores:
        raise TailraceError(f"none of these stores can be opened: {absent}")
    steps = len(options.workloads) * (options.rounds + 1) * len(stores)
    found: dict[str, dict[str, dict[str, _Cell]]] = {mode: {} for mode in MODES}
    harness: dict[str, list[float]] = {mode: [] for mode in MODES}
    memory: dict[str, dict[str, int]] = {one.name: {} for one in stores}
    done = 0
    for name in options.workloads:
        report(f"{name}: making the trace", done, steps)
        whole = prepare(_trace(name, options))
        parts = {"batch": whole, "scalar": prepare(_first(whole.trace, options.scalar_accesses))}
        for mode in MODES:
            found[mode][name] = {one.name: _Cell() for one in stores}
            harness[mode].append(harness_ns(parts[mode], options.how(mode)))
        for number in range(options.rounds + 1):
            for store in in_turns(tuple(one.name for one in stores), number):
                report(f"{name}: {store}", done, steps)
                for mode in MODES:
                    cell, part = found[mode][name][store], parts[mode]
                    with opened(STORES[store], part, options.how(mode), work) as open_store:
                        memory[store] = open_store.memory
                        if number == 0:  # takes the time of every call, and warms up
                            cell.latency = latencies(open_store, part, options.how(mode))
                        else:
                            cell.passes.append(throughput(open_store, part, options.how(mode), check_left=False))
                done += 1
    report("done", steps, steps)
    return _result(options, found, harness, memory, absent)


def _there(kinds: Iterable[type[Store]], work: Path) -> tuple[list[type[Store]], dict[str, str]]:
    """Those that can be opened here, compiled and warm; and of the others why not."""
    small = prepare(_warm_up_trace())
    there, absent = [], {}
    for kind in kinds:
        try:
            for batch in (None, len(small)):
                with opened(kind, small, How(batch), work) as store:
                    throughput(store, small, How(batch))
            there.append(kind)
        except StoreUnavailableError as error:
            absent[kind.name] = str(error)
    return there, absent


def _warm_up_trace() -> Trace:
    operations = [*Operation, Operation.MERGE, Operation.GET, Operation.DELETE] * 4
    sizes = [20 if one in (Operation.PUT, Operation.MERGE) else 0 for one in operations]
    keys = np.arange(len(operations)) // 7
    return Trace(np.array(operations, np.uint8), keys, np.array(sizes, np.int32), np.zeros(len(operations), np.int64))


def _trace(name: str, options: GadgetOptions) -> Trace:
    """So many accesses; sizes of values are constant, but for the lists of open sessions."""
    return trace_of(
        name,
        options.source,
        events=options.accesses,
        expected_num_operations=str(options.accesses),
        operator_value_size_distrib_type="constant",
        operator_value_size_distrib_params_constant=str(options.value_bytes),
        seed=str(options.seed),
    )


def _first(trace: Trace, accesses: int) -> Trace:
    """The beginning; keys are numbered by first appearance, so they need no new numbers."""
    part = slice(0, accesses)
    return Trace(
        trace.operations[part], trace.keys[part], trace.value_sizes[part], trace.times[part], None, trace.metadata
    )


def _result(
    options: GadgetOptions,
    found: dict[str, dict[str, dict[str, _Cell]]],
    harness: dict[str, list[float]],
    memory: dict[str, dict[str, int]],
    absent: dict[str, str],
) -> dict[str, Any]:
    table = {
        mode: {name: {store: cell.ops_per_s for store, cell in cells.items()} for name, cells in found[mode].items()}
        for mode in MODES
    }
    first = {name: max(row, key=lambda store: row[store]) for name, row in table["batch"].items()}
    return {
        "bench": "gadget",
        **table,
        "first": first,
        "ours_first": sum(store in OURS for store in first.values()),
        "lead": {name: _lead(row) for name, row in table["batch"].items() if _lead(row) is not None},
        "chosen": {name: chosen(name) for name in options.workloads},
        "latency_us": {
            mode: {name: {s: cell.latency.us for s, cell in cells.items()} for name, cells in found[mode].items()}
            for mode in MODES
        },
        "spread": {
            f"{mode} {name}": {
                store: measure.spread([one.ops_per_s for one in cell.passes]) for store, cell in cells.items()
            }
            for mode in MODES
            for name, cells in found[mode].items()
        },
        "harness_ns": {mode: measure.median(values) for mode, values in harness.items()},
        "memory": memory,
        "batch_notes": {name: STORES[name].batch_note for name in memory},
        "absent": absent,
        "series_ms": {  # milliseconds of a million accesses in batch mode, workload after workload
            store: [round(1e9 / table["batch"][name][store], 3) for name in options.workloads] for store in memory
        },
        "batch_accesses": options.batch,
        **facts(options, "source", "accesses", "scalar_accesses", "value_bytes", "memory_bytes", "rounds", "seed"),
        "answers_equal": True,
    }


def _lead(row: dict[str, int]) -> float | None:
    """How many times as fast as the best other store Tailrace's best one is."""
    ours = [rate for store, rate in row.items() if store in OURS]
    others = [rate for store, rate in row.items() if store not in OURS]
    return measure.ratio(max(ours), max(others)) if ours and others else None
