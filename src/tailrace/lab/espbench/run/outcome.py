"""What came of a run: the validator's verdicts and exact latencies, with the original's columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tailrace.lab.espbench.results.utilisation import Sample
from tailrace.lab.espbench.sender.senders import StreamSent
from tailrace.lab.espbench.validator.compare import Pairs, Verdict

FULFILLED_MS = 2_000
"""The original's limit of the 90th percentile."""


@dataclass(frozen=True)
class Outcome:
    """``latencies_ms``: of all results but those caused during the warm-up, from append time to append time.

    ``fault``: why the run says nothing, or less than it should.
    """

    system: str
    query: str
    rate: int
    run: int
    inputs: int
    pairs: Pairs
    verdict: Verdict
    latencies_ms: Sequence[int]
    sent: Sequence[StreamSent]
    validator_s: float
    drained_s: float
    """From the last message until the last result."""
    utilisation: Sequence[Sample] = field(default_factory=tuple)
    killed: int = 0
    faults: Sequence[str] = field(default_factory=tuple)

    def percentile(self, q: float) -> float:
        return float(np.percentile(self.latencies_ms, q)) if len(self.latencies_ms) else float("nan")

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
            **{f"p{q:g}_ms": round(self.percentile(q), 1) for q in (50, 90, 99)},
            "max_ms": max(self.latencies_ms, default=None),
            "drained_s": round(self.drained_s, 2),
            "killed": self.killed,
        }
