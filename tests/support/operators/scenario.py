"""A random sequence of epochs through an operator: failed tries, replays, dropped undo logs, moved shards, restarts.

``play`` is the same for all operators. A ``Scenario`` is one operator's part: the rows and times of an epoch, what the
epoch must emit, and which invariants hold after it. All randomness comes from one seed, so a seed repeats a run.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

from support.operators.cluster import Cluster
from tailrace.operators.ingest.key_hash import put_hashes


class Scenario:
    """One operator's rows, times and checks. ``cluster`` runs them."""

    sizes: Sequence[int] = (0, 1, 10, 30)
    """Rows of an epoch."""

    def __init__(self, cluster: Any) -> None:
        self.cluster: Any = cluster

    def given(self, epoch: int, count: int) -> tuple[Any, ...]:
        """The epoch's input for ``cluster.run``, with about so many rows. Time moves on."""
        raise NotImplementedError

    def saved(self) -> Any:
        """The position in the stream of rows, for ``rewind_to``."""
        raise NotImplementedError

    def rewind_to(self, saved: Any) -> None:
        """An epoch failed: the stream continues from this position."""
        raise NotImplementedError

    def check(self, epoch: int, given: tuple[Any, ...], found: list[Any]) -> None:
        """Fails where ``found`` is not what the epoch must emit."""
        raise NotImplementedError

    def restart(self) -> None:
        self.cluster.restart()

    def check_invariants(self) -> None:
        """Invariants after an epoch, and after whatever followed it: a dropped undo log, a moved shard, a restart."""


class TimedScenario(Scenario):
    """A scenario over a ``stream`` that makes rows and times. All of the stream's mutable state is plain numbers."""

    def __init__(self, cluster: Any, stream: Any) -> None:
        super().__init__(cluster)
        self.stream: Any = stream

    def given(self, epoch: int, count: int) -> tuple[Any, ...]:
        rows = self.stream.rows(count)
        return rows, self.stream.times(rows)

    def saved(self) -> Any:
        return dict(vars(self.stream))

    def rewind_to(self, saved: Any) -> None:
        vars(self.stream).update(saved)


def play(scenario: Scenario, rng: random.Random, epochs: int, *, failing: float = 0.2, restarting: float = 0.1) -> None:
    """``failing``, ``restarting``: the probability of each, before and after every epoch."""
    cluster: Cluster = scenario.cluster
    before: tuple[tuple[Any, ...], dict[int, int], Counter[str]] | None = None
    for epoch in range(epochs):
        if rng.random() < failing:  # a try that fails
            saved = scenario.saved()
            cluster.run(epoch, *scenario.given(epoch, rng.randint(0, 12)))
            scenario.rewind_to(saved)
            cluster.undo(epoch)
            if before is not None and rng.random() < 0.5:  # and the epoch before it is replayed
                given, counts, emitted = before
                cluster.undo(epoch - 1)
                cluster.take_back_sections(counts)
                again = Counter(map(repr, cluster.epoch(epoch - 1, *given)))
                assert again == emitted, f"a replayed epoch {epoch - 1} emits other rows"
                scenario.rewind_to(saved)
        given = scenario.given(epoch, rng.choice(scenario.sizes))
        counts = cluster.section_counts()
        found = cluster.epoch(epoch, *given)
        scenario.check(epoch, given, found)
        before = (given, counts, Counter(map(repr, found)))
        if rng.random() < 0.3:
            cluster.forget(epoch - 1)
            before = None
        if rng.random() < restarting:
            scenario.restart()
            before = None
        elif rng.random() < 0.15:
            cluster.forget(epoch)
            cluster.move(rng.randrange(cluster.spec.shards))
            before = None
        scenario.check_invariants()
    cluster.close()


@contextmanager
def few_hashes(rng: random.Random, *modules: ModuleType) -> Iterator[None]:
    """In some runs the keys that these modules hash get so few different hashes that they collide."""
    hashes = rng.choice([1, 2, 50, 2**62])

    def put_few(rows: Any, program: Any) -> None:
        put_hashes(rows, program)
        rows.words[:, 0] %= hashes

    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            patch.setattr(module, "put_hashes", put_few)
        yield
