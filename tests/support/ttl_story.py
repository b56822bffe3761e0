"""Epochs of an operator that forgets keys, told from a seed: rows, times, failed tries, replays, moves, restarts.

Who tells it brings the operator's description, rows of his own making and a model of what each epoch must emit.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import pytest

from support.keyed_cluster import NO_TIME, KeyedCluster, Times
from tailrace.ids import Micros
from tailrace.operators import lift, row_lift
from tailrace.operators.key_hash import put_hashes
from tailrace.operators.specs.ttl import Clock
from tailrace.types import Field

Row = dict[str, Any]


class Model(Protocol):
    def epoch(self, rows: list[Row], times: Times) -> Counter[Any]:
        """What the epoch emits."""

    @property
    def kept(self) -> int | None:
        """How many records are kept; None: nobody can say."""


class Story:
    """``make``: a row at about this time. Times are whole numbers of ``unit`` microseconds."""

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


def tell(
    spec: Any, columns: tuple[Field, ...], story: Story, model: Model, rng: random.Random, epochs: int
) -> KeyedCluster:
    """Checked epoch by epoch."""
    hashes = rng.choice([1, 2, 50, 2**62])

    def few_hashes(rows: Any, program: Any) -> None:
        put_hashes(rows, program)
        rows.words[:, 0] %= hashes

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lift, "put_hashes", few_hashes)
        patch.setattr(row_lift, "put_hashes", few_hashes)
        assert type(spec).from_json(spec.to_json()) == spec
        cluster = KeyedCluster(spec, columns, rng, folder)
        before: tuple[Any, ...] | None = None
        for epoch in range(epochs):
            if rng.random() < 0.2:  # an attempt that comes to nothing
                saved = dict(vars(story))
                rows = story.rows(rng.randint(0, 12))
                cluster.run(epoch, rows, story.times(rows))
                vars(story).update(saved)
                cluster.undo(epoch)
                if before is not None and rng.random() < 0.5:  # and the epoch before it is tried once more
                    cluster.undo(epoch - 1)
                    cluster.take_back_sections(before[2])
                    again = Counter(map(repr, cluster.epoch(epoch - 1, *before[:2])))
                    assert again == before[3], f"a replayed epoch {epoch - 1} emits other rows"
            rows = story.rows(rng.choice([0, 1, 10, 30]))
            times = story.times(rows)
            counts = cluster.section_counts()
            found = Counter(map(repr, cluster.epoch(epoch, rows, times)))
            assert found == model.epoch(rows, times), f"epoch {epoch}"
            before = (rows, times, counts, found)
            if rng.random() < 0.3:
                cluster.forget(epoch - 1)
                before = None
            if rng.random() < 0.1:
                if rng.random() < 0.5:  # a time-to-live may be another one from then on
                    story.span = story.span * rng.choice([1, 3, 9]) // rng.choice([1, 2, 8]) + 1
                    cluster.spec = replace(spec, ttl=replace(spec.ttl, span=Micros(story.span)))
                cluster.restart()
                before = None
            elif rng.random() < 0.15:
                cluster.forget(epoch)
                cluster.move(rng.randrange(spec.shards))
                before = None
            if model.kept is not None:
                assert cluster.rows == model.kept
        cluster.close()
        return cluster
