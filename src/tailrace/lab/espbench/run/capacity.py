"""The highest rate that a system sustains: found by doubling until it falls behind, then by halving the gap.

A rate is sustained when every result is there, once and right, and latency does not grow: by less than a fiftieth of
the time that passes, since a queue that grows faster never ends. Short trials cannot see slower growth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tailrace.lab.espbench.config import Config
from tailrace.lab.espbench.names import OF_DATABASE, QUERIES
from tailrace.lab.espbench.run.one_run import Conduct, Progress, RunOptions, one_run
from tailrace.lab.espbench.run.outcome import Outcome, growth
from tailrace.lab.espbench.run.servers import Servers, servers
from tailrace.lab.espbench.systems.process import SystemFailedError

GROWTH = 0.02


@dataclass(frozen=True)
class CapacityOptions:
    """``lowest`` and ``highest``: rates to look between. ``precision``: of the answer, as a share of it."""

    query: str
    systems: Sequence[str]
    lowest: int
    highest: int
    precision: float
    config: Config
    data: Path
    conduct: Conduct


@dataclass(frozen=True)
class Trial:
    """``why_not``: why a rate was not sustained; empty where it was. ``sender``: our own sender was too slow for it."""

    rate: int
    why_not: str
    p90_ms: float | None
    sender: bool = False


@dataclass(frozen=True)
class Capacity:
    """``rate``: the highest that was sustained, 0 for none. ``at_least``: no higher one could be sent, or was tried."""

    query: str
    system: str
    rate: int
    at_least: bool
    trials: tuple[Trial, ...]

    def summary(self) -> dict[str, Any]:
        return {**asdict(self), "trials": [asdict(trial) for trial in self.trials]}


def capacities(options: CapacityOptions, work: Path, progress: Progress) -> Iterator[Capacity]:
    number = options.config.benchmark_run
    with servers(options.config, QUERIES[options.query].base in OF_DATABASE) as started:
        for system in options.systems:

            def tried(rate: int, system: str = system) -> Trial:
                nonlocal number
                number += 1
                return _trial(options, system, rate, number, started, work, progress)

            yield searched(options.query, system, options.lowest, options.highest, options.precision, tried)


def searched(
    query: str, system: str, lowest: int, highest: int, precision: float, tried: Callable[[int], Trial]
) -> Capacity:
    trials: list[Trial] = []

    def sustained(rate: int) -> bool:
        trials.append(tried(rate))
        return not trials[-1].why_not

    good, bad = 0, 0
    rate = lowest
    while not bad:
        if not sustained(rate):
            bad = rate
        elif rate >= highest:
            return Capacity(query, system, rate, True, tuple(trials))
        else:
            good, rate = rate, min(rate * 2, highest)
    while good and bad / good > 1 + precision:
        middle = round((good * bad) ** 0.5)
        good, bad = (middle, bad) if sustained(middle) else (good, middle)
    return Capacity(query, system, good, any(trial.sender and trial.rate == bad for trial in trials), tuple(trials))


def _trial(
    options: CapacityOptions, system: str, rate: int, number: int, started: Servers, work: Path, progress: Progress
) -> Trial:
    config = replace(options.config.at_rate(rate), benchmark_run=number)
    asked = RunOptions(system, QUERIES[options.query], config, options.data, options.conduct)

    def shown(what: str, at: int, steps: int) -> None:
        progress(f"{system}, {rate:,}/s: {what}", at, steps)

    try:
        outcome = one_run(asked, started, work / f"{system}-{number}", shown)
    except SystemFailedError as error:
        return Trial(rate, str(error), None)
    p90_ms = round(outcome.percentile(90), 1) if len(outcome.latencies_ms) else None
    return Trial(rate, why_not(outcome), p90_ms, sender=bool(outcome.faults))


def why_not(outcome: Outcome) -> str:
    """Why the rate of a run was not sustained, if it was not."""
    verdict = outcome.verdict
    if outcome.faults:
        return f"the sender was too slow: {outcome.faults[0]}"
    if not verdict.exactly_once:
        wrong = verdict.wrong + verdict.unexpected
        return f"{verdict.missing:,} results were missing, {verdict.doubled:,} doubled and {wrong:,} wrong"
    if (grown := growth(outcome.caused_ms, outcome.latencies_ms)) > GROWTH:
        return f"latency grew by {grown:.3f} s in a second"
    return ""
