"""What came of a run: the validator's verdicts and exact latencies, with the original's columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tailrace.lab.espbench.results.utilisation import Sample
from tailrace.lab.espbench.run.recovery import Kill
from tailrace.lab.espbench.sender.senders import StreamSent
from tailrace.lab.espbench.validator.compare import Pairs, Verdict

_STRETCHES = 10
FULFILLED_MS = 2_000
"""The original's limit of the 90th percentile."""


@dataclass(frozen=True)
class Outcome:
    """``latencies_ms``: of all results but those caused during the warm-up, from append time to append time.
    ``seen_ms``: the same, until somebody who reads whole transactions had them.

    ``faults``: why the run says nothing, or less than it should.
    """

    system: str
    query: str
    rate: int
    run: int
    inputs: int
    pairs: Pairs
    verdict: Verdict
    latencies_ms: Sequence[int]
    caused_ms: Sequence[int]
    seen_ms: Sequence[float]
    sent: Sequence[StreamSent]
    validator_s: float
    drained_s: float
    """From the last message until the last result."""
    utilisation: Sequence[Sample] = field(default_factory=tuple)
    kills: Sequence[Kill] = field(default_factory=tuple)
    undecided: int = 0
    stale_max_ms: float = 0
    faults: Sequence[str] = field(default_factory=tuple)

    def percentile(self, q: float) -> float:
        return _percentile(self.latencies_ms, q)

    def row(self, topic: str, interval: int, unit: str) -> dict[str, object]:
        """Of the original's result file, from all latencies instead of a sample of 1,028."""
        low, high, mean = (
            (min(self.latencies_ms), max(self.latencies_ms), round(float(np.mean(self.latencies_ms)), 3))
            if len(self.latencies_ms)
            else ("", "", "")
        )
        p90 = self.percentile(90)
        return {
            "sendingInterval": interval,
            "sendingIntervalTimeUnit": unit,
            "Query": self.query,
            "Topic": topic,
            "Correct": self.pairs.correct,
            "RT-Fulfilled": p90 < FULFILLED_MS,
            "RT-90%ile in ms": p90,
            "RT-Min in ms": low,
            "RT-Max in ms": high,
            "RT-Mean in ms": mean,
            "Input": self.inputs,
            "Expected Output": self.pairs.expected,
            "Actual Output": self.pairs.actual,
            "False Output": self.pairs.errors,
            "Correctness %": self.pairs.correctness,
            "ValidatorRuntime in s": round(self.validator_s, 3),
        }

    def summary(self) -> dict[str, Any]:
        """One line of JSON's worth."""
        return {
            "system": self.system,
            "query": self.query,
            "rate": self.rate,
            "run": self.run,
            "valid": not self.faults,
            "faults": list(self.faults),
            "correct": self.pairs.correct,
            "correctness": self.pairs.correctness,
            "exactly_once": self.verdict.exactly_once,
            "missing": self.verdict.missing,
            "doubled": self.verdict.doubled,
            "wrong": self.verdict.wrong + self.verdict.unexpected,
            "out_of_order": self.verdict.out_of_order,
            "inputs": self.inputs,
            "results": self.pairs.actual,
            **percentiles(self.latencies_ms),
            **percentiles(self.seen_ms, "seen_"),
            "growth": round(growth(self.caused_ms, self.latencies_ms), 4),
            "drained_s": round(self.drained_s, 2),
            "cores": self.cores(),
            "kills": [asdict(kill) for kill in self.kills],
            "undecided": self.undecided,
            "stale_max_ms": round(self.stale_max_ms, 1),
        }

    def cores(self) -> dict[str, float]:
        """In use, on the mean while messages were sent, by the system and all the others."""
        found: dict[str, list[float]] = {}
        for sample in self.utilisation:
            found.setdefault(sample.process, []).append(sample.cpu)
        return {name: round(float(np.mean(used)), 2) for name, used in found.items() if name != "network"}


def growth(caused_ms: Sequence[int], latencies_ms: Sequence[int]) -> float:
    """Seconds by which latency grows in a second: what a system is too slow by. From the medians of ten stretches, so
    that one pause counts little; 0 where there is too little to tell."""
    if len(caused_ms) < _STRETCHES:
        return 0.0
    caused, latencies = np.array(caused_ms, float), np.array(latencies_ms, float)
    bounds = np.linspace(caused.min(), caused.max(), _STRETCHES + 1)
    places = np.clip(np.searchsorted(bounds, caused, "right") - 1, 0, _STRETCHES - 1)
    at = [(caused[places == n].mean(), np.median(latencies[places == n])) for n in range(_STRETCHES) if n in places]
    slopes = [(late - soon) / (x - w) for n, (w, soon) in enumerate(at) for x, late in at[n + 1 :]]
    return float(np.median(slopes)) if slopes else 0.0


def percentiles(values: Sequence[float], prefix: str = "") -> dict[str, float | None]:
    """Exact ones, by the names that summaries have; None where there is no value."""
    found = {"p50": 50, "p90": 90, "p99": 99, "min": 0, "max": 100}
    return {f"{prefix}{name}_ms": _known(round(_percentile(values, q), 1)) for name, q in found.items()}


def _percentile(values: Sequence[float], q: float) -> float:
    known = np.array(values, float)
    known = known[~np.isnan(known)]
    return float(np.percentile(known, q)) if len(known) else float("nan")


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value
