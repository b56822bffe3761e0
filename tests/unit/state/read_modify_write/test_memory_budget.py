"""Epochs of many times the memory budget: what a store holds is counted whenever it looks at its budget."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tailrace.env.transit_memory import TransitMemory
from tailrace.ids import MIN_MICROS
from tailrace.state.hash_table.table import Table
from tailrace.state.layout import HASH, PANE, VALID, Merge, record_layout
from tailrace.state.read_modify_write import shard_turns
from tailrace.state.read_modify_write.memory_budget import MemoryBudget
from tailrace.state.read_modify_write.shard_turns import shard_turns as turns_of
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows.rows import Rows
from tailrace.types import BIGINT, Field

LAYOUT = record_layout([Field("k", BIGINT)], [(Merge.ADD, BIGINT)], ansi=False)
SHARDS = 16
BUDGET = 400_000
TURN = 1_000
RECORD_BYTES = 200
"""What a record takes in a table, generously."""


def frame(keys: np.ndarray, pane: int = 0) -> tuple[Rows, np.ndarray]:
    keys = keys[np.argsort(keys % SHARDS, kind="stable")]
    words = np.zeros((len(keys), LAYOUT.words), np.int64)
    words[:, HASH] = words[:, LAYOUT.keys[0].word] = keys
    words[:, PANE], words[:, LAYOUT.accumulators[0].word] = pane, 1
    words[:, VALID] = 1 << LAYOUT.keys[0].bit | 1 << LAYOUT.accumulators[0].bit
    return Rows(words, np.empty(0, np.uint8)), np.searchsorted(keys % SHARDS, np.arange(SHARDS + 1))


@contextmanager
def store_of(folder: Path, transit: TransitMemory | None = None) -> Iterator[ReadModifyWriteStore]:
    store = ReadModifyWriteStore(
        LAYOUT, range(SHARDS), 1, spill_changes=True, transit=transit, memory_bytes=BUDGET, folder=str(folder)
    )
    yield store
    store.close()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of the tables, whenever the budget is looked at."""
    monkeypatch.setattr(shard_turns, "TURN_ROWS", TURN)
    seen: list[int] = []
    hold = MemoryBudget.hold

    def watched(self: MemoryBudget, tables: dict[int, Table], *more: object) -> None:
        seen.append(sum(table.nbytes for table in tables.values()))
        hold(self, tables, *more)  # type: ignore[arg-type]
        seen.append(sum(table.nbytes for table in tables.values()))

    monkeypatch.setattr(MemoryBudget, "hold", watched)
    return seen


def sums(store: ReadModifyWriteStore) -> dict[int, int]:
    """Of the newest epoch's changes, as its delta has them."""
    found = pa.Table.from_batches([*store.delta().values()])
    return dict(zip(found.column("k0").to_pylist(), found.column("a0").to_pylist(), strict=True))


def test_an_epoch_of_many_times_the_budget_stays_within_it(tmp_path: Path, held: list[int]) -> None:
    keys = np.random.default_rng(1).permutation(30_000)
    with store_of(tmp_path) as store:
        for epoch in range(4):  # the first makes all records, the others bring them from disk; two can be undone
            store.merge(epoch, [frame(part) for part in np.array_split(keys, 2)])
            assert sums(store) == dict.fromkeys(range(30_000), epoch + 1)
            assert store.changes.count() == 30_000
        store.undo(2)
        store.merge(2, [frame(keys[:10])])
        assert sums(store) == {int(key): 3 for key in keys[:10]}
    assert 10 * max(held) < 30_000 * RECORD_BYTES
    assert max(held) < BUDGET + 2 * TURN * RECORD_BYTES


def test_records_that_the_first_turn_evicts_are_found_by_the_next(tmp_path: Path, held: list[int]) -> None:
    with store_of(tmp_path) as store:
        store.merge(0, [frame(np.arange(2_000))])
        store.forget(0)
        assert not store.spilled, "the budget was not exceeded so far"
        store.merge(1, [frame(np.arange(30_000))])
        assert sums(store) == {key: 2 if key < 2_000 else 1 for key in range(30_000)}
        store.undo(1)
        assert store.rows == 2_000


def test_records_of_panes_that_expire_in_their_own_epoch_are_not_evicted(tmp_path: Path, held: list[int]) -> None:
    with store_of(tmp_path) as store:
        store.merge(0, [frame(np.arange(1_000), pane=1)])
        store.expire(2)
        store.merge(1, [frame(np.arange(30_000), pane=2)])
        assert store.rows == 30_000
        store.undo(1)
        assert store.rows == 0
        store.undo(0)
        assert (store.rows, store.horizon) == (0, MIN_MICROS)


def test_a_delta_of_many_times_its_memory_lies_on_disk(tmp_path: Path, held: list[int]) -> None:
    transit = TransitMemory(100_000)
    with store_of(tmp_path, transit) as store:
        store.merge(0, [frame(np.arange(30_000))])
        delta = store.delta()
        assert delta.nbytes > 8 * transit.bytes_max >= 8 * transit.peak_bytes > 0
        assert sum(len(section) for section in delta.values()) == 30_000


def test_turns_are_whole_shards_of_about_so_many_rows() -> None:
    keys = np.random.default_rng(2).integers(0, 1 << 40, 5_000)
    frames = [frame(keys[:3_000]), frame(keys[3_000:]), frame(keys[:0])]
    found: list[np.ndarray] = []
    for turn in turns_of(frames, 700):
        assert sum(len(rows) for rows, _ in turn) <= 700
        for (rows, bounds), (whole, whole_bounds) in zip(turn, frames, strict=True):
            assert bounds[0] == 0 and bounds[-1] == len(rows)
            for shard in range(SHARDS):
                own = rows.words[bounds[shard] : bounds[shard + 1]]
                assert len(own) in (0, whole_bounds[shard + 1] - whole_bounds[shard])
                if len(own):
                    assert (own == whole.words[whole_bounds[shard] : whole_bounds[shard + 1]]).all()
            found.append(rows.words[:, HASH])
    assert sorted(np.concatenate(found).tolist()) == sorted(keys.tolist())
    (all_at_once,) = turns_of(frames, 5_000)
    assert all_at_once is frames
