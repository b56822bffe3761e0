"""Two traces side by side: how far one is from the other, metric by metric. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tailrace.lab.gadget.analysis.composition import composition
from tailrace.lab.gadget.analysis.key_distance import KolmogorovSmirnov, kolmogorov_smirnov, wasserstein
from tailrace.lab.gadget.analysis.numbering import numbered
from tailrace.lab.gadget.analysis.summary import SEED, OrderMetrics, order_metrics
from tailrace.lab.gadget.traces.trace import Trace


@dataclass(frozen=True)
class Comparison:
    accesses: tuple[int, int]
    keys: tuple[int, int]
    compositions: tuple[dict[str, float], dict[str, float]]
    metrics: tuple[OrderMetrics, OrderMetrics]
    key_test: KolmogorovSmirnov | None
    """Of the accessed keys, as numbers by first appearance; None where a trace is empty."""
    wasserstein: float | None

    @property
    def composition_difference(self) -> float:
        """The largest of any operation's share, in percentage points."""
        first, second = self.compositions
        return 100 * max(abs(first[name] - second[name]) for name in first)

    @property
    def stack_distance_difference(self) -> float | None:
        """Of the means, as a share of the first; None where a trace has none."""
        first, second = (each.mean_stack_distance for each in self.metrics)
        return None if first is None or second is None else difference(first, second)

    @property
    def sequences_difference(self) -> float:
        """The largest at any length, as a share of the first."""
        first, second = (each.unique_sequences for each in self.metrics)
        return max(difference(a, b) for a, b in zip(first, second, strict=True))

    @property
    def working_set_difference(self) -> float:
        """Of the largest ones."""
        first, second = (each.working_set_max for each in self.metrics)
        return difference(first, second)

    def to_json(self) -> dict[str, Any]:
        differences = {name: getattr(self, name) for name in _DIFFERENCES}
        return {**differences, **asdict(self)}


_DIFFERENCES = (
    "composition_difference",
    "stack_distance_difference",
    "sequences_difference",
    "working_set_difference",
)


def difference(first: float, second: float) -> float:
    """As a share of the first; of nothing, 0 or 1.

    >>> difference(100, 96)
    0.04
    """
    if not first:
        return 0.0 if not second else 1.0
    return abs(first - second) / abs(first)


def compare(first: Trace, second: Trace, seed: int = SEED) -> Comparison:
    """``seed``: of the keys whose lives are sampled."""
    ids = [numbered(trace.keys) for trace in (first, second)]
    some = len(first) > 0 and len(second) > 0
    return Comparison(
        accesses=(len(first), len(second)),
        keys=(ids[0][1], ids[1][1]),
        compositions=(composition(first), composition(second)),
        metrics=(order_metrics(first, seed), order_metrics(second, seed)),
        key_test=kolmogorov_smirnov(ids[0][0], ids[1][0]) if some else None,
        wasserstein=wasserstein(ids[0][0], ids[1][0]) if some else None,
    )
