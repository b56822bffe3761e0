"""The plot of an operator's story: tries that come to nothing, replays, what is forgotten, moves, restarts.

All operators are told by the same plot. What is an operator's own are the scenes: the rows and times of an epoch, what
it must emit, and what else must hold. The plot draws from the story's seed, so a story is its seed.
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


class Scenes:
    """What a story is about. ``cluster`` is told it."""

    sizes: Sequence[int] = (0, 1, 10, 30)
    """Rows of an epoch."""

    def __init__(self, cluster: Any) -> None:
        self.cluster: Any = cluster

    def given(self, epoch: int, count: int) -> tuple[Any, ...]:
        """What the cluster is given in the epoch, with about so many rows; the story's times go on."""
        raise NotImplementedError

    def saved(self) -> Any:
        """Where the story stands."""
        raise NotImplementedError

    def put_back(self, saved: Any) -> None:
        """An epoch came to nothing: the story stands there again."""
        raise NotImplementedError

    def check(self, epoch: int, given: tuple[Any, ...], found: list[Any]) -> None:
        """Whether that is what the epoch emits."""
        raise NotImplementedError

    def restart(self) -> None:
        self.cluster.restart()

    def settled(self) -> None:
        """What holds after an epoch, whatever came between it and the next."""


class TimedScenes(Scenes):
    """Of a ``story`` that makes rows, and times by them, and holds nothing that changes but numbers."""

    def __init__(self, cluster: Any, story: Any) -> None:
        super().__init__(cluster)
        self.story: Any = story

    def given(self, epoch: int, count: int) -> tuple[Any, ...]:
        rows = self.story.rows(count)
        return rows, self.story.times(rows)

    def saved(self) -> Any:
        return dict(vars(self.story))

    def put_back(self, saved: Any) -> None:
        vars(self.story).update(saved)


def play(scenes: Scenes, rng: random.Random, epochs: int, *, failing: float = 0.2, restarting: float = 0.1) -> None:
    """``failing``, ``restarting``: how likely it is before and after each epoch."""
    cluster: Cluster = scenes.cluster
    before: tuple[tuple[Any, ...], dict[int, int], Counter[str]] | None = None
    for epoch in range(epochs):
        if rng.random() < failing:  # an attempt that comes to nothing
            saved = scenes.saved()
            cluster.run(epoch, *scenes.given(epoch, rng.randint(0, 12)))
            scenes.put_back(saved)
            cluster.undo(epoch)
            if before is not None and rng.random() < 0.5:  # and the epoch before it is tried once more
                given, counts, emitted = before
                cluster.undo(epoch - 1)
                cluster.take_back_sections(counts)
                again = Counter(map(repr, cluster.epoch(epoch - 1, *given)))
                assert again == emitted, f"a replayed epoch {epoch - 1} emits other rows"
                scenes.put_back(saved)
        given = scenes.given(epoch, rng.choice(scenes.sizes))
        counts = cluster.section_counts()
        found = cluster.epoch(epoch, *given)
        scenes.check(epoch, given, found)
        before = (given, counts, Counter(map(repr, found)))
        if rng.random() < 0.3:
            cluster.forget(epoch - 1)
            before = None
        if rng.random() < restarting:
            scenes.restart()
            before = None
        elif rng.random() < 0.15:
            cluster.forget(epoch)
            cluster.move(rng.randrange(cluster.spec.shards))
            before = None
        scenes.settled()
    cluster.close()


@contextmanager
def few_hashes(rng: random.Random, *modules: ModuleType) -> Iterator[None]:
    """Keys that these modules hash have so few hashes, in some stories, that they collide."""
    hashes = rng.choice([1, 2, 50, 2**62])

    def put_few(rows: Any, program: Any) -> None:
        put_hashes(rows, program)
        rows.words[:, 0] %= hashes

    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            patch.setattr(module, "put_hashes", put_few)
        yield
