"""Many runs: queries, rates and systems, each so many times, and none again that a folder of results has.

Systems take turns run by run, so that what changes on the machine changes for all of them. A system that fails costs
its run, not the series.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tailrace.lab.espbench.config import Config
from tailrace.lab.espbench.names import OF_DATABASE, QUERIES
from tailrace.lab.espbench.results.files import ResultFolder
from tailrace.lab.espbench.run.one_run import Conduct, Progress, RunOptions, one_run
from tailrace.lab.espbench.run.outcome import Outcome
from tailrace.lab.espbench.run.servers import servers
from tailrace.lab.espbench.systems.process import SystemFailedError, expresses


@dataclass(frozen=True)
class SeriesOptions:
    queries: Sequence[str]
    rates: Sequence[int]
    systems: Sequence[str]
    runs: int
    config: Config
    data: Path
    conduct: Conduct = field(default_factory=Conduct)


@dataclass(frozen=True)
class Failed:
    """A run without an outcome."""

    system: str
    query: str
    rate: int
    why: str


def run_series(
    options: SeriesOptions, results: ResultFolder | None, work: Path, progress: Progress
) -> Iterator[Outcome | Failed]:
    todo = list(_todo(options, results))
    if not todo:
        return
    number = options.config.benchmark_run if results is None else results.next_run(options.config.benchmark_run)
    progress("servers start", 0, len(todo))
    with servers(options.config, any(QUERIES[query].base in OF_DATABASE for query, *_ in todo)) as started:
        for done, (query, rate, system) in enumerate(todo):
            label = f"{done + 1} of {len(todo)}: {query} at {rate:,}/s on {system}"
            of_run = replace(options.config.at_rate(rate), benchmark_run=number)
            asked = RunOptions(system, QUERIES[query], of_run, options.data, options.conduct)

            def shown(what: str, at: int, steps: int, label: str = label) -> None:
                progress(f"{label}: {what}", at, steps)

            try:
                outcome: Outcome | Failed = one_run(asked, started, work / f"{system}-{number}", shown)
            except SystemFailedError as error:
                outcome = Failed(system, query, rate, str(error))
            if isinstance(outcome, Outcome) and results is not None:
                results.add(outcome, of_run)
            number += 1
            yield outcome


def _todo(options: SeriesOptions, results: ResultFolder | None) -> Iterator[tuple[str, int, str]]:
    for query in options.queries:
        for rate in options.rates:
            for run in range(options.runs):
                for system in options.systems:
                    if not expresses(system, QUERIES[query]) and len(options.queries) > 1:
                        continue  # of a matrix it is left out; asked for by itself it is an error
                    if results is None or results.runs(system, query, rate, options.conduct.kills) <= run:
                        yield query, rate, system
