"""Both append stores against a dict of lists: whatever is appended, removed, undone, restored, in and out of memory."""

from __future__ import annotations

import os
import random
import tempfile
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from support.models.appended_rows import RowModel
from support.stores.raw_rows import LAYOUT, Row, draw_keys, draw_row, from_rows, from_section, to_frame, to_rows
from tailrace.state.append import aligned as append_aligned
from tailrace.state.append import list_sections
from tailrace.state.append import unaligned as append_unaligned
from tailrace.state.append.aligned import AppendAlignedStore
from tailrace.state.append.list_runs import UNKNOWN
from tailrace.state.append.unaligned import AppendUnalignedStore
from tailrace.state.tuning import DEFAULT_TUNING, Tuning

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
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
        memory_bytes=st.sampled_from([0, 3000, 15_000, 10**9]),
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

    @rule(sizes=st.lists(st.integers(0, 30), max_size=3), fresh=st.booleans())
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
    def expire(self, horizon: int) -> None:
        self.store.expire(horizon)
        self.model.expire(horizon)

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
        """From sections as a store of its own makes them: one per epoch, compacted or not."""
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
        assert self.store.rows == self.model.rows
        assert self.store.newest_epoch == (self.model.epochs[-1][0] if self.model.epochs else None)

    def teardown(self) -> None:
        if hasattr(self, "model"):
            self.store.close()
            assert self.store.disk_bytes == self.store.nbytes == self.store.rows == 0
        self.folder.cleanup()


class AlignedMachine(StoreMachine):
    @initialize(amplification=st.sampled_from([1.0, 1.5, 100.0]))
    def choose(self, amplification: float) -> None:
        self.tuning = Tuning(max_space_amplification=amplification)

    def make_store(self, memory_bytes: int, undo_epochs: int) -> AppendAlignedStore:
        return AppendAlignedStore(
            LAYOUT,
            range(SHARDS),
            shard_count=SHARDS,
            memory_bytes=memory_bytes,
            folder=self.folder.name,
            undo_epochs=undo_epochs,
            tuning=getattr(self, "tuning", DEFAULT_TUNING),
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
            batches = [append_aligned.compact_sections(LAYOUT, batches, horizon)]
        return batches, [row for row in rows if row.pane >= horizon]

    def draw_any_rows(self, count: int) -> list[Row]:
        return [draw_row(self.rng, self.rng.choice(self.keys), self.rng.choice(PANES)) for _ in range(count)]

    @invariant()
    def same_panes(self) -> None:
        if not hasattr(self, "model"):
            return
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
        panes: dict[tuple[int, str], list[int]] = {}
        for row in (row for piece in pieces for row in piece):
            panes.setdefault((row.hash, repr(row.key)), []).append(row.pane)
        assert all(starts == sorted(starts) for starts in panes.values()), "a key's rows are not pane by pane"
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


class UnalignedMachine(StoreMachine):
    @initialize(
        ratio=st.sampled_from([0.0, 0.02, 0.5, 1.0]),
        amplification=st.sampled_from([1.0, 1.5]),
        instances=st.integers(1, 3),
    )
    def choose(self, ratio: float, amplification: float, instances: int) -> None:
        self.options = {
            "tuning": Tuning(ratio, amplification),
            "instances": instances,
        }

    def make_store(self, memory_bytes: int, undo_epochs: int) -> AppendUnalignedStore:
        return AppendUnalignedStore(
            LAYOUT,
            range(SHARDS),
            shard_count=SHARDS,
            memory_bytes=memory_bytes,
            folder=self.folder.name,
            undo_epochs=undo_epochs,
            **getattr(self, "options", {}),
        )

    def append(self, epoch: int, frames: list[tuple[Any, np.ndarray]], rng: random.Random) -> None:
        triggers = [np.array([rng.randrange(100) for _ in range(len(rows))], np.int64) for rows, _ in frames]
        self.store.append(epoch, frames, None if rng.random() < 0.2 else triggers)

    def draw_targets(self, share: float) -> list[Row]:
        """Lists that are there and some that are not, in no order."""
        lists = {row.list_key: row for rows in self.model.lists.values() for row in rows if self.rng.random() < share}
        lists |= {row.list_key: row for row in self.draw_frame_rows(5)}
        found = [Row(row.hash, row.pane, row.key, (None,) * 4) for row in lists.values()]
        self.rng.shuffle(found)
        return found

    @rule(share=st.sampled_from([0.0, 0.2, 1.0]), remove=st.booleans())
    def read(self, share: float, remove: bool) -> None:
        remove = remove and bool(self.model.epochs)
        targets = self.draw_targets(share)
        rows, offsets = self.store.read(to_rows(targets), remove=remove)
        found = from_rows(rows)
        assert len(offsets) == len(targets) + 1 and offsets[0] == 0 and offsets[-1] == len(found)
        assert _listed(found, offsets) == [_rows_of(self.model, target) for target in targets]
        if remove:
            self.model.remove(target.list_key for target in targets)

    @precondition(lambda self: self.model.epochs)
    @rule(share=st.sampled_from([0.2, 1.0]))
    def remove(self, share: float) -> None:
        targets = self.draw_targets(share)
        self.store.remove(to_rows(targets))
        self.model.remove(target.list_key for target in targets)

    @precondition(lambda self: self.model.epochs)
    @rule(complete=st.booleans())
    def delta(self, complete: bool) -> None:
        """The state before and the newest delta give the state now, shard by shard, compacted or not."""
        _, before, _ = self.model.epochs[-1]
        deltas = self.store.delta()
        assert set(deltas) <= self.model.shards
        other = self.make_store(10**9, 1)
        for shard in self.model.shards:
            old = [row for key, rows in before.items() if key[1] % SHARDS == shard for row in rows]
            base = _as_section(old)
            batches = [base, *([deltas[shard]] if shard in deltas else [])]
            if complete:
                batches = [append_unaligned.compact_sections(LAYOUT, batches, self.model.horizon, complete=True)]
                assert not any(batches[0].column("__gone").to_pylist())
            other.restore(shard, batches, self.model.horizon)
        keys = {key: rows[0] for lists in (before, self.model.lists) for key, rows in lists.items()}
        targets = [Row(row.hash, row.pane, row.key, (None,) * 4) for row in keys.values()]
        rows, offsets = other.read(to_rows(targets), remove=False)
        found = from_rows(rows)
        assert _listed(found, offsets) == [_rows_of(self.model, target) for target in targets]
        other.close()

    def sections_of_another(self, shard: int, parts: int, horizon: int) -> tuple[list[pa.RecordBatch], list[Row]]:
        other, model = self.make_store(10**9, 2), RowModel(range(SHARDS), SHARDS, 2)
        batches = []
        for epoch in range(parts):
            part = [row for row in self.draw_any_rows(12) if self.model.shard(row) == shard]
            other.append(epoch, [to_frame(part, SHARDS)], None)
            model.open(epoch, part)
            targets = {row.list_key: row for rows in model.lists.values() for row in rows if self.rng.random() < 0.3}
            other.remove(to_rows([Row(row.hash, row.pane, row.key, (None,) * 4) for row in targets.values()]))
            model.remove(targets)
            batches += other.delta().values()
        other.close()
        if batches and self.rng.random() < 0.5:
            # Only the newest: a compaction must still remove what older sections hold.
            at = self.rng.randrange(len(batches))
            batches[at:] = [append_unaligned.compact_sections(LAYOUT, batches[at:], horizon)]
        model.expire(horizon)
        return batches, [row for rows in model.lists.values() for row in rows]

    def draw_any_rows(self, count: int) -> list[Row]:
        return [draw_row(self.rng, self.rng.choice(self.keys), self.rng.choice(PANES)) for _ in range(count)]


def _listed(found: list[Row], offsets: np.ndarray) -> list[list[str]]:
    return [[row.shown for row in found[a:b]] for a, b in pairwise(offsets)]


def _rows_of(model: RowModel, target: Row) -> list[str]:
    return [row.shown for row in model.lists.get(target.list_key, [])]


def _as_section(rows: list[Row]) -> pa.RecordBatch:
    none = np.zeros(len(rows), bool), np.full(len(rows), UNKNOWN)
    return list_sections.to_section(list_sections.Entries(to_rows(rows), *none), LAYOUT)


def _shown(lists: dict[tuple[int, int, str], list[Row]]) -> dict[tuple[int, int, str], list[str]]:
    return {key: [row.shown for row in rows] for key, rows in lists.items()}


def _runs(keys: list[Any]) -> list[Any]:
    return [key for i, key in enumerate(keys) if not i or keys[i - 1] != key]


TestAligned = AlignedMachine.TestCase
TestAligned.settings = settings(max_examples=1500 if LONG else 100, stateful_step_count=30)

TestUnaligned = UnalignedMachine.TestCase
TestUnaligned.settings = settings(max_examples=1500 if LONG else 100, stateful_step_count=30)
