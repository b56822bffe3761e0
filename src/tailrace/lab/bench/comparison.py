"""What benches share that compare engines: they live at the same time, take turns, and end together.

What an engine leaves behind (files that are still being written, caches full of its data) is paid by the one after it.
So the order of turns is not only rotated: over ``2 * n`` turns each of ``n`` engines stands in every place equally
often, and equally often right after every other one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tailrace.lab.bench import measure
from tailrace.lab.bench.options import ComparisonOptions
from tailrace.lab.engines.group import EngineGroup
from tailrace.lab.engines.process import EngineProcess
from tailrace.lab.registry import Value
from tailrace.lab.workloads import keyed_sums

ONE_PIECE_A_CORE = {
    "spark.sql.files.openCostInBytes": "0",
    "spark.sql.files.maxPartitionNum": str(measure.cores()),
}
"""A file is cut by its bytes alone: one of equal row groups, one for each core, gives each core one of them.

And no more: of an odd number of bytes, one is left for a task that finds nothing in it, and that others wait for.
"""
NO_EMPTY_BATCHES = {**ONE_PIECE_A_CORE, "spark.sql.streaming.noDataMicroBatches.enabled": "false"}
"""Also, nothing runs between two batches: what a batch without data would do, the next one does in its own time."""

Report = Callable[[str, int, int], None]
"""Called with what is going on, the steps done and the steps in all."""
Batches = dict[str, list[dict[str, Any]]]
"""Engine to what it reported of each batch."""


def counted(turn: int) -> int:
    """Batches of a turn that are counted: where there are several, all but the first."""
    return max(1, turn - 1)


def in_turns(names: tuple[str, ...], number: int) -> tuple[str, ...]:
    """The order of turn ``number``.

    >>> [in_turns(("a", "b", "c"), number) for number in range(3)]
    [('a', 'b', 'c'), ('b', 'c', 'a'), ('c', 'a', 'b')]
    >>> in_turns(("a", "b", "c"), 3)
    ('c', 'b', 'a')
    """
    count = len(names)
    zigzag = [(i + 1) // 2 if i % 2 else -(i // 2) for i in range(count)]
    order = [(place + number) % count for place in zigzag]
    if number // count % 2:
        order.reverse()
    return tuple(names[i] for i in order)


@contextmanager
def engines_running(
    options: ComparisonOptions,
    work: Path,
    confs: Mapping[str, str],
    sink: str = "noop",
    workload: str = keyed_sums.NAME,
    values: Mapping[str, Value] | None = None,
) -> Iterator[dict[str, EngineProcess]]:
    """The engines, each with its query started; all are ended on the way out, whatever happened."""
    every = {**confs, **options.confs}
    with EngineGroup() as group:
        engines = {
            name: group.add(EngineProcess(workload, name, work, every, values, {"commit": options.commit}))
            for name in options.engines
        }
        start_queries(group, engines, sink)
        yield engines


def start_queries(group: EngineGroup, engines: Mapping[str, EngineProcess], sink: str) -> None:
    group.wait_ready()
    for engine in engines.values():
        engine.ask("start", sink=sink, out=str(engine.work / "rows"))


def batch_with_cpu(ask: Callable[[], dict[str, Any]], engine: EngineProcess) -> dict[str, Any]:
    """A batch's report with the processor time that the engine used meanwhile; None where the system does not say."""
    before = engine.cpu_s()
    report = ask()
    after = engine.cpu_s()
    return {**report, "cpu_ms": None if before is None or after is None else round((after - before) * 1e3)}


class Turns(Protocol):
    """``warmup`` batches for all that are not counted, then ``turns`` of ``turn`` batches for each."""

    @property
    def warmup(self) -> int: ...
    @property
    def turns(self) -> int: ...
    @property
    def turn(self) -> int: ...


def run_turns(
    turns: Turns,
    engines: Mapping[str, EngineProcess],
    make: Callable[[int], list[str]],
    progress: Callable[[str, int], None],
) -> Batches:
    """What each engine reports of its counted batches. ``make``: so many further files, which all engines get."""
    found: Batches = {name: [] for name in engines}
    for first in range(0, turns.warmup, turns.turn):
        progress("warming up", first)
        paths = make(min(turns.turn, turns.warmup - first))
        for engine in engines.values():
            for path in paths:
                engine.ask("batch", file=path)
    for number in range(turns.turns):
        progress("measuring", turns.warmup + number * turns.turn)
        paths = make(turns.turn)
        for name in in_turns(tuple(engines), number):
            os.sync()
            found[name] += [one_batch(engines[name], path) for path in paths][-counted(turns.turn) :]
    return found


def one_batch(engine: EngineProcess, path: str) -> dict[str, Any]:
    return batch_with_cpu(lambda: engine.ask("batch", file=path), engine)


def series_of(batches: Batches, what: str = "ms") -> dict[str, list[Any]]:
    return {name: [batch[what] for batch in each] for name, each in batches.items()}


def each(of: Callable[[list[float]], float], series: Mapping[str, list[float]]) -> dict[str, float]:
    """A number of every engine's series."""
    return {name: of(values) for name, values in series.items()}


def median_durations(batches: list[dict[str, Any]], kind: str) -> dict[str, float]:
    """The median of each named part of a batch's time; a part that a batch does not name took none of its."""
    names = {name for batch in batches for name in batch[kind]}
    return {name: measure.median([batch[kind].get(name, 0) for batch in batches]) for name in sorted(names)}


def facts(options: Any, *fields: str) -> dict[str, Any]:
    """The end of every bench's result: options by these names, whether answers were checked, the machine."""
    return {
        **{name: getattr(options, name) for name in fields},
        "answers_equal": True if getattr(options, "check", False) else None,
        "machine": measure.machine(),
        "versions": measure.versions(),
    }
