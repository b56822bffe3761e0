"""Both append stores against a dict of lists: whatever is appended, removed, undone, restored, in and out of memory."""

from __future__ import annotations

import random
import tempfile
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from support.raw_rows import LAYOUT, Row, draw_keys, draw_row, from_rows, from_section, to_frame
from support.row_model import RowModel
from tailrace.state import append_aligned
from tailrace.state.append_aligned import AppendAlignedStore

SHARDS = 3
PANES = (-(2**63), -5, 0, 10, 20, 30, 2**63 - 1)
END = 2**63 - 1


class StoreMachine(RuleBasedStateMachine):
    """The rules that both stores share. ``seed`` stands for keys and values."""

    store: Any

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.epoch = 0
        self.deltas: dict[int, list[tuple[int, dict[int, pa.RecordBatch]]]] = {}

    def make_store(self, memory_bytes: int, undo_epochs: int) -> Any:
        raise NotImplementedError

    def append(self, epoch: int, frames: list[tuple[Any, np.ndarray]], rng: random.Random) -> None:
        self.store.append(epoch, frames)

    @initialize(
        seed=st.integers(0, 2**32),
        keys=st.integers(1, 10),
        hashes=st.integers(1, 4),
        memory_bytes=st.sampled_from([0, 500, 4000, 10**9]),
        undo_epochs=st.integers(1, 3),
    )
    def start(self, seed: int, keys: int, hashes: int, memory_bytes: int, undo_epochs: int) -> None:
        self.rng = random.Random(seed)
        self.keys = draw_keys(self.rng, keys, hashes)
        self.memory_bytes = memory_bytes
        self.model = RowModel(range(SHARDS), SHARDS, undo_epochs)
        self.store = self.make_store(memory_bytes, undo_epochs)

    def draw_frame_rows(self, count: int) -> list[Row]:
        rows = [draw_row(self.rng, self.rng.choice(self.keys), self.rng.choice(PANES)) for _ in range(count)]
        return [row for row in rows if self.model.shard(row) in self.model.shards]

    @rule(sizes=st.lists(st.integers(0, 25), max_size=3), fresh=st.booleans())
    def append_rows(self, sizes: list[int], fresh: bool) -> None:
        self.epoch += 1 if fresh else 3
        parts = [self.draw_frame_rows(size) for size in sizes]
        self.append(self.epoch, [to_frame(part, SHARDS) for part in parts], self.rng)
        self.model.open(self.epoch, [row for part in parts for row in part])

    @rule()
    def open_without_rows(self) -> None:
        self.epoch += 1
        self.store.open_epoch(self.epoch)
        self.model.open(self.epoch, [])

    @precondition(lambda self: self.model.epochs)
    @rule(horizon=st.sampled_from(PANES))
    def evict(self, horizon: int) -> None:
        self.store.evict(horizon)
        self.model.evict(horizon)

    @rule(back=st.integers(-1, 4))
    def undo(self, back: int) -> None:
        self.store.undo(self.epoch - back)
        self.model.undo(self.epoch - back)

    @rule(back=st.integers(0, 3))
    def forget(self, back: int) -> None:
        self.store.forget(self.epoch - back)
        self.model.forget(self.epoch - back)

    @precondition(lambda self: len(self.model.shards) > 1)
    @rule(number=st.integers(0, SHARDS))
    def drop_shard(self, number: int) -> None:
        shard = sorted(self.model.shards)[number % len(self.model.shards)]
        self.store.drop_shard(shard)
        self.model.drop_shard(shard)

    @rule(shard=st.integers(0, SHARDS - 1), parts=st.integers(0, 3), horizon=st.sampled_from(PANES[:3]))
    def restore(self, shard: int, parts: int, horizon: int) -> None:
        """From sections as a store of its own makes them: one per epoch, folded or not."""
        batches, rows = self.sections_of_another(shard, parts, horizon)
        self.model.drop_shard(shard)
        self.store.restore(shard, batches, horizon)
        self.model.horizon = max(self.model.horizon, horizon)
        self.model.restored(shard, rows)

    def sections_of_another(self, shard: int, parts: int, horizon: int) -> tuple[list[pa.RecordBatch], list[Row]]:
        raise NotImplementedError

    @invariant()
    def same_facts(self) -> None:
        if not hasattr(self, "model"):
            return
        assert self.store.shards == self.model.shards
        assert self.store.horizon == self.model.horizon
        assert self.store.newest_epoch == (self.model.epochs[-1][0] if self.model.epochs else None)

    def teardown(self) -> None:
        if hasattr(self, "model"):
            self.store.close()
            assert self.store.disk_bytes == self.store.nbytes == self.store.rows == 0
        self.folder.cleanup()


class AlignedMachine(StoreMachine):
    def make_store(self, memory_bytes: int, undo_epochs: int) -> AppendAlignedStore:
        return AppendAlignedStore(
            LAYOUT,
            range(SHARDS),
            shard_count=SHARDS,
            memory_bytes=memory_bytes,
            folder=self.folder.name,
            undo_epochs=undo_epochs,
        )

    def sections_of_another(self, shard: int, parts: int, horizon: int) -> tuple[list[pa.RecordBatch], list[Row]]:
        other = self.make_store(10**9, 2)
        batches, rows = [], []
        for epoch in range(parts):
            part = [row for row in self.draw_any_rows(12) if self.model.shard(row) == shard]
            other.append(epoch, [to_frame(part, SHARDS)])
            delta = other.delta()
            assert set(delta) == ({shard} if part else set())
            batches += delta.values()
            rows += part
        if self.rng.random() < 0.5:
            batches = [append_aligned.fold_sections(LAYOUT, batches, horizon)]
        return batches, [row for row in rows if row.pane >= horizon]

    def draw_any_rows(self, count: int) -> list[Row]:
        return [draw_row(self.rng, self.rng.choice(self.keys), self.rng.choice(PANES)) for _ in range(count)]

    @invariant()
    def same_rows(self) -> None:
        if not hasattr(self, "model"):
            return
        assert self.store.rows == self.model.rows
        assert self.store.panes(END).tolist() == sorted({key[0] for key in self.model.lists if key[0] < END})

    @rule(first=st.sampled_from(PANES), end=st.sampled_from(PANES), piece_bytes=st.sampled_from([1, 300, 10**9]))
    def read(self, first: int, end: int, piece_bytes: int) -> None:
        expected = {key: rows for key, rows in self.model.lists.items() if first <= key[0] < end}
        pieces = [from_rows(piece) for piece in self.store.read(first, end, piece_bytes)]
        assert all(pieces), "an empty piece"
        found: dict[tuple[int, int, str], list[Row]] = {}
        for row in (row for piece in pieces for row in piece):
            found.setdefault(row.list_key, []).append(row)
        assert _shown(found) == _shown(expected)
        runs = [_runs([(row.hash, repr(row.key)) for row in piece]) for piece in pieces]
        keys = [key for run in runs for key in run]
        assert len(keys) == len(set(keys)), "a key lies in two pieces, or its rows are not adjacent"
        hashes = [(row.hash % SHARDS, row.hash) for piece in pieces for row in piece]
        assert hashes == sorted(hashes)
        if piece_bytes == 1:
            assert all(len({hash_ for hash_, _ in run}) == 1 for run in runs)

    @precondition(lambda self: self.model.epochs)
    @rule()
    def delta(self) -> None:
        """What the newest epoch appended is the difference to before, in order."""
        _, before, _ = self.model.epochs[-1]
        expected = {}
        for key, rows in self.model.lists.items():
            if len(rows) > len(before.get(key, [])):
                expected[key] = rows[len(before.get(key, [])) :]
        found: dict[tuple[int, int, str], list[Row]] = {}
        for shard, batch in self.store.delta().items():
            for row in from_section(batch):
                assert self.model.shard(row) == shard
                found.setdefault(row.list_key, []).append(row)
        assert _shown(found) == _shown(expected)


def _shown(lists: dict[tuple[int, int, str], list[Row]]) -> dict[tuple[int, int, str], list[str]]:
    return {key: [row.shown for row in rows] for key, rows in lists.items()}


def _runs(keys: list[Any]) -> list[Any]:
    return [key for i, key in enumerate(keys) if not i or keys[i - 1] != key]


TestAligned = AlignedMachine.TestCase
TestAligned.settings = settings(max_examples=120, stateful_step_count=30)
