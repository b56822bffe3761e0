"""Random epochs of an operator whose keys expire: rows, times, failed tries, replays, moved shards, restarts.

The caller brings the operator's spec, a function that makes rows, and a model of what each epoch must emit.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from support.operators.keyed_cluster import NO_TIME, KeyedCluster, Times
from support.operators.scenario import TimedScenario, few_hashes, play
from tailrace.ids import Micros
from tailrace.operators.aggregate.ingest import partials as input
from tailrace.operators.ingest import rows as row_ingest
from tailrace.operators.timers.ttl import Clock
from tailrace.types import Field

Row = dict[str, Any]


class Model(Protocol):
    def epoch(self, rows: list[Row], times: Times) -> Counter[Any]:
        """What the epoch emits."""

    @property
    def kept(self) -> int | None:
        """How many records are kept; None where the model does not know."""


class TimedRows:
    """Makes rows and epoch times. ``make``: a row at about the given time."""

    def __init__(
        self, clock: Clock, span: int, rng: random.Random, make: Callable[[int], Row], *, late_by_watermark: bool
    ) -> None:
        self.clock, self.span, self.rng, self.make = clock, span, rng, make
        self.time, self.now = rng.choice([0, -500, 10**15]), 5
        self.mark = self.forgotten = NO_TIME
        self._by_watermark = late_by_watermark

    def rows(self, count: int) -> list[Row]:
        self.time += self.rng.choice([0, 1, 5, 30])
        return [self.make(self.time) for _ in range(count)]

    def times(self, rows: list[Row]) -> Times:
        before = self.mark if self._by_watermark else self.forgotten
        self.mark = max([self.mark, *(row["ts"] - 3 for row in rows if row["ts"] is not None)])
        self.now += self.rng.choice([0, 1, 7, 40])
        clock = self.now if self.clock is Clock.PROCESSING else self.mark
        if clock > NO_TIME:
            self.forgotten = max(self.forgotten, clock - self.span)
        return Times(before, self.mark if self._by_watermark else self.forgotten, self.now, self.forgotten)


class _Epochs(TimedScenario):
    def __init__(self, cluster: KeyedCluster, stream: TimedRows, model: Model) -> None:
        super().__init__(cluster, stream)
        self.model = model

    def check(self, epoch: int, given: tuple[Any, ...], found: list[Any]) -> None:
        assert Counter(map(repr, found)) == self.model.epoch(*given), f"epoch {epoch}"

    def restart(self) -> None:
        rng, stream, spec = self.stream.rng, self.stream, self.cluster.spec
        if rng.random() < 0.5:  # a restart may change the time-to-live
            stream.span = stream.span * rng.choice([1, 3, 9]) // rng.choice([1, 2, 8]) + 1
            spec = replace(spec, ttl=replace(spec.ttl, span=Micros(stream.span)))
        self.cluster.restart(spec)

    def check_invariants(self) -> None:
        if self.model.kept is not None:
            assert self.cluster.rows == self.model.kept


def run_scenario(
    spec: Any, columns: tuple[Field, ...], stream: TimedRows, model: Model, rng: random.Random, epochs: int
) -> KeyedCluster:
    """Runs the epochs and checks each against the model."""
    assert type(spec).from_json(spec.to_json()) == spec
    with tempfile.TemporaryDirectory() as folder, few_hashes(rng, input, row_ingest):
        cluster = KeyedCluster(spec, columns, rng, folder)
        play(_Epochs(cluster, stream, model), rng, epochs)
        return cluster
