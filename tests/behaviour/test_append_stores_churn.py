"""The unaligned store under churn: many short lists, most on disk, read early, late and again, undone and restored.

One integer stands for a whole scenario; a failing one is printed.
"""

from __future__ import annotations

import os
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.operators.ingest.frame import by_shard
from tailrace.state.append.list_instance import Stats
from tailrace.state.append.unaligned import AppendUnalignedStore, compact_sections
from tailrace.state.layout import Merge, record_layout
from tailrace.state.rows.rows import Rows
from tailrace.state.tuning import Tuning
from tailrace.types import BIGINT, Field

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
LAYOUT = record_layout([Field("k", BIGINT)], [(Merge.ROW, BIGINT)], ansi=False)
SHARDS = 4
KEYS = 150
PANES = 4

List = tuple[int, int]  # pane, key


class Churn:
    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = rng = random.Random(seed)
        self.folder = str(folder)
        self.undo_epochs = rng.choice([1, 2, 3])
        self.store = AppendUnalignedStore(
            LAYOUT,
            range(SHARDS),
            shard_count=SHARDS,
            memory_bytes=rng.choice([20_000, 60_000]),
            folder=self.folder,
            undo_epochs=self.undo_epochs,
            tuning=Tuning(rng.choice([0.02, 0.2, 0.5]), rng.choice([1.1, 1.5, 3.0])),
            instances=rng.choice([1, 2, 3]),
        )
        self.hashes = [rng.getrandbits(64) - 2**63 for _ in range(KEYS)]
        for i in range(0, KEYS, 10):  # a tenth of all keys share their hash with another
            self.hashes[i] = self.hashes[i + 1]
        self.lists: dict[List, tuple[int, ...]] = {}
        self.before: list[tuple[int, dict[List, tuple[int, ...]]]] = []
        self.epoch = self.values = 0

    def rows(self, lists: list[List], values: list[int] | None = None) -> Rows:
        words = np.zeros((len(lists), LAYOUT.words), np.int64)
        for i, (pane, key) in enumerate(lists):
            words[i] = (self.hashes[key], pane, 3, key, 0 if values is None else values[i])
        return Rows(words, np.empty(0, np.uint8))

    def append(self) -> None:
        self.epoch += 1
        lists = [(self.rng.randrange(PANES), self.rng.randrange(KEYS)) for _ in range(self.rng.choice([0, 20, 150]))]
        values = list(range(self.values, self.values + len(lists)))
        self.values += len(lists)
        frame = by_shard(self.rows(lists, values), SHARDS).parts()
        soon = self.rng.choice([5, 50])
        triggers = np.array([self.epoch + (k * 7 + p) % soon for p, k in frame[0].words[:, [1, 3]].tolist()], np.int64)
        self.store.append(self.epoch, [frame], [triggers])
        self.before = [*self.before, (self.epoch, dict(self.lists))][-self.undo_epochs :]
        for name, value in zip(lists, values, strict=True):
            self.lists[name] = (*self.lists.get(name, ()), value)

    def read(self) -> None:
        names = [(p, k) for p in range(PANES) for k in range(KEYS)]
        names = self.rng.sample(names, self.rng.choice([1, 5, 30, 300]))
        remove = bool(self.before) and self.rng.random() < 0.7
        rows, offsets = self.store.read(self.rows(names), remove=remove)
        found = [tuple(rows.words[a:b, 4].tolist()) for a, b in pairwise(offsets)]
        assert found == [self.lists.get(name, ()) for name in names]
        if remove:
            for name in names:
                self.lists.pop(name, None)

    def undo(self) -> None:
        back = self.rng.randrange(3)
        self.store.undo(self.epoch - back)
        while self.before and self.before[-1][0] >= self.epoch - back:
            _, self.lists = self.before.pop()

    def forget(self) -> None:
        self.store.forget(self.epoch)
        self.before = []

    def replace_shard(self) -> None:
        """A shard is given away and comes back compacted: a base and the newest delta."""
        if not self.before:
            return
        shard = self.rng.randrange(SHARDS)
        delta = self.store.delta().get(shard)
        twin = AppendUnalignedStore(LAYOUT, [shard], shard_count=SHARDS, memory_bytes=10**9, folder=self.folder)
        owned = [
            (n, v) for n, values in self.before[-1][1].items() for v in values if self.hashes[n[1]] % SHARDS == shard
        ]
        twin.append(0, [by_shard(self.rows([n for n, _ in owned], [v for _, v in owned]), SHARDS).parts()])
        sections = [*twin.delta().values(), *([] if delta is None else [delta])]
        twin.close()
        self.store.drop_shard(shard)
        self.store.restore(shard, [compact_sections(LAYOUT, sections, 0)] if sections else [], 0)
        now = self.owned(self.lists, shard)
        for _, lists in self.before:  # the restored shard is the same in every epoch that can be undone
            for name in self.owned(lists, shard):
                del lists[name]
            lists.update(now)

    def owned(self, lists: dict[List, tuple[int, ...]], shard: int) -> dict[List, tuple[int, ...]]:
        return {name: values for name, values in lists.items() if self.hashes[name[1]] % SHARDS == shard}


def churn(seed: int, folder: Path, steps: int = 120) -> Stats:
    case = Churn(seed, folder)
    moves = [case.append] * 8 + [case.read] * 8 + [case.undo, case.forget, case.replace_shard]
    for _ in range(steps):
        case.rng.choice(moves)()
        assert case.store.rows == sum(map(len, case.lists.values()))
    stats = case.store.stats()
    case.store.close()
    return stats


@settings(max_examples=400 if LONG else 30)
@given(seed=st.integers(0, 2**32))
def test_lists_are_right_under_churn(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    churn(seed, tmp_path_factory.mktemp("churn"))


def test_churn_reaches_what_it_is_for(tmp_path: Path) -> None:
    """Or the test above would prove little."""
    total = sum((churn(seed, tmp_path) for seed in range(6)), Stats())
    assert min(total.hits, total.misses, total.lists_evicted, total.compactions) > 20, total
