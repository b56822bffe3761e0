"""All metrics of one trace, each beside the same trace shuffled, as one value that becomes tables, JSON and charts.

A shuffled trace has the same accesses in another order: what differs between the two is what order makes.

Threads: pure functions.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tailrace.lab.gadget.analysis import key_distance, key_lives, sequences, stack_distance
from tailrace.lab.gadget.analysis.composition import (
    composition,
    event_amplification,
    hottest_share,
    key_space_amplification,
    single_access_share,
)
from tailrace.lab.gadget.analysis.numbering import numbered
from tailrace.lab.gadget.traces.trace import Trace

SEED = 1
_POINTS_MAX = 200


@dataclass(frozen=True)
class OrderMetrics:
    """What depends on the order of accesses."""

    mean_stack_distance: float | None
    stack_distances: list[tuple[int, int]]
    """Upper bound and count, by powers of two."""
    unique_sequences: list[int]
    """Of length 1, 2, ..."""
    time_to_live: dict[str, int]
    """Percentile to steps, over a sample of keys."""
    time_to_live_all: dict[str, int]
    working_set_mean: float
    working_set_max: int
    working_set: list[int]
    """Active keys at steps that are as far from each other as the trace's length over the number of values."""


@dataclass(frozen=True)
class Analysis:
    accesses: int
    keys: int
    events: int | None
    event_keys: int | None
    composition: dict[str, float]
    event_amplification: float | None
    key_space_amplification: float | None
    ks_distance: float | None
    ks_p_value: float | None
    wasserstein: float | None
    single_access_share: float
    hottest_share: float
    """Of accesses, to the most popular hundredth of keys."""
    trace: OrderMetrics
    shuffled: OrderMetrics
    metadata: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def analyze(trace: Trace, seed: int = SEED) -> Analysis:
    """``seed``: of the shuffle, and of the keys whose lives are sampled."""
    against = key_distance.against_input(trace)
    events = trace.events
    return Analysis(
        accesses=len(trace),
        keys=numbered(trace.keys)[1],
        events=None if events is None else len(events.keys),
        event_keys=None if events is None else numbered(events.keys)[1],
        composition=composition(trace),
        event_amplification=event_amplification(trace),
        key_space_amplification=key_space_amplification(trace),
        ks_distance=None if against is None else against[0].distance,
        ks_p_value=None if against is None else against[0].p_value,
        wasserstein=None if against is None else against[1],
        single_access_share=single_access_share(trace.keys),
        hottest_share=hottest_share(trace.keys),
        trace=order_metrics(trace, seed),
        shuffled=order_metrics(trace.shuffled(seed), seed),
        metadata=dict(trace.metadata),
    )


def order_metrics(trace: Trace, seed: int = SEED) -> OrderMetrics:
    found = stack_distance.distances(trace.keys)
    lives = key_lives.lifetimes(trace.keys)
    active = key_lives.working_set(trace)
    if not len(active):  # shorter than the distance of two samples
        active = key_lives.active_keys(trace)[-1:]
    return OrderMetrics(
        mean_stack_distance=stack_distance.mean_distance(found),
        stack_distances=stack_distance.histogram(found),
        unique_sequences=sequences.unique_sequences(trace.keys),
        time_to_live=key_lives.percentiles(lives, seed),
        time_to_live_all=key_lives.percentiles(lives, seed, sample=None),
        working_set_mean=float(active.mean()) if len(active) else 0.0,
        working_set_max=int(active.max()) if len(active) else 0,
        working_set=_thinned(active).tolist(),
    )


def _thinned(values: np.ndarray) -> np.ndarray:
    """Few enough to be drawn, evenly spread."""
    return values[:: max(1, -(-len(values) // _POINTS_MAX))]
