"""What append stores take on disk: no more than so many times what they need, however long some rows live.

Bytes and files are those that the operating system counts.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from support.stores.raw_rows import LAYOUT as WIDE
from support.stores.raw_rows import draw_keys, draw_row, from_rows, to_frame
from tailrace.operators.ingest.frame import by_shard
from tailrace.operators.metrics import with_ratios
from tailrace.state.append.aligned import AppendAlignedStore
from tailrace.state.append.pane_segments import SEGMENTS_MAX
from tailrace.state.append.unaligned import AppendUnalignedStore
from tailrace.state.layout import Merge, record_layout
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.rows.rows import Rows
from tailrace.state.tuning import Tuning
from tailrace.types import BIGINT, DataType, Field

LAYOUT = record_layout([Field("k", BIGINT)], [(Merge.ROW, BIGINT)], ansi=False)
STRING = DataType("string")
LETTERS = record_layout([Field("k", BIGINT)], [(Merge.ROW, STRING)], ansi=False)
ROW_BYTES = 8 * LAYOUT.words
LIST_BYTES = 32  # of a list in a segment's index
SHARDS = 4
STORES = {"aligned": AppendAlignedStore, "unaligned": AppendUnalignedStore}
MEMORY = 100_000
EPOCH_ROWS = 500
FAR = 10**6
LIMIT = 1.5
BLOCKS_BYTES = 4096
"""What the last block of each part of a file with holes leaves free."""


def rows_of(keys: np.ndarray, panes: np.ndarray | int, values: np.ndarray | int = 0) -> Rows:
    words = np.zeros((len(keys), LAYOUT.words), np.int64)
    words[:, 0] = (keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(np.int64)
    words[:, 1], words[:, 2], words[:, 3], words[:, 4] = panes, 3, keys, values
    return Rows(words, np.empty(0, np.uint8))


def letters_of(keys: np.ndarray, panes: np.ndarray, lengths: np.ndarray) -> Rows:
    """Rows with strings of these lengths."""
    builder = RowsBuilder(len(keys), LETTERS)
    builder.words[:, 0] = (keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(np.int64)
    builder.words[:, 1] = panes
    (key,), (text,) = LETTERS.keys, LETTERS.accumulators
    builder.put(pa.array(keys), BIGINT, key.word, key.bit)
    builder.put(pa.array(["x" * length for length in lengths.tolist()]), STRING, text.word, text.bit)
    return builder.finish()


def frame(rows: Rows) -> tuple[Rows, np.ndarray]:
    return by_shard(rows, SHARDS).parts()


def open_files(folder: Path) -> list[int]:
    """Bytes on disk of the files that this process holds open in the folder: without a name, only this shows them."""
    links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    found = [os.stat(link) for link in links if os.path.islink(link) and str(folder) in os.readlink(link)]
    return [min(each.st_size, 512 * each.st_blocks) for each in found]  # some have holes, all a last block


class Case:
    """Rows of which one in a hundred lives long, in a store and in an array of (pane, key, value)."""

    def __init__(self, kind: str, folder: Path, *, memory: int = MEMORY, limit: float = LIMIT) -> None:
        self.folder = folder
        self.aligned = kind == "aligned"
        self.make: Callable[[], Any] = lambda: STORES[kind](
            LAYOUT, range(SHARDS), shard_count=SHARDS, memory_bytes=memory, folder=str(folder),
            tuning=Tuning(max_space_amplification=limit),
        )  # fmt: skip
        self.store = self.make()
        self.rng = np.random.default_rng(random.randrange(2**32))
        self.epochs: list[np.ndarray] = []
        self.horizons: list[int] = []  # before each epoch
        self.deltas: list[dict[int, Any]] = []

    def epoch(self, life: int = 20) -> None:
        number = len(self.epochs)
        long_lived = self.rng.random(EPOCH_ROWS) < 0.01
        panes = np.where(long_lived, FAR + number % 7, number)
        keys = self.rng.integers(0, 10_000, EPOCH_ROWS)
        self.epochs.append(np.stack([panes, keys, number * EPOCH_ROWS + np.arange(EPOCH_ROWS)], 1))
        self.horizons.append(self.store.horizon)
        self.deltas.append({})
        self.replay(number, life)

    def replay(self, number: int, life: int = 20) -> None:
        panes, keys, values = self.epochs[number].T
        self.store.append(number, [frame(rows_of(keys, panes, values))])
        self.store.expire(number - life)
        self.deltas[number] = self.store.delta()

    def rows(self, horizon: int) -> np.ndarray:
        every = np.concatenate(self.epochs)
        return every[every[:, 0] >= horizon]

    @property
    def expected(self) -> list[tuple[int, ...]]:
        return sorted(map(tuple, self.rows(self.store.horizon).tolist()))

    @property
    def found(self) -> list[tuple[int, ...]]:
        if self.aligned:
            parts = [rows.words for rows in self.store.read(-(2**63), 2**63 - 1)]
        else:
            lists = np.unique(self.rows(self.store.horizon)[:, :2], axis=0)
            parts = [self.store.read(rows_of(lists[:, 1], lists[:, 0]), remove=False)[0].words]
        return sorted(map(tuple, np.concatenate(parts)[:, [1, 3, 4]].tolist()))

    def check_space(self) -> None:
        # The two newest epochs can be undone: what the older of them has expired must still be there.
        needed = len(self.rows(self.horizons[-2])) if len(self.horizons) > 1 else EPOCH_ROWS
        files = open_files(self.folder)
        row_bytes, blocks_bytes = (ROW_BYTES, 0) if self.aligned else (ROW_BYTES + LIST_BYTES, 5 * BLOCKS_BYTES)
        assert sum(files) <= LIMIT * row_bytes * needed + blocks_bytes * len(files)
        assert self.store.rows == len(self.rows(self.store.horizon)), "expired rows are not there"


@pytest.fixture(params=list(STORES))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_long_lived_rows_do_not_hold_dead_ones_on_disk(kind: str, tmp_path: Path) -> None:
    case = Case(kind, tmp_path)
    for _ in range(300):
        case.epoch()
        case.check_space()
        assert len(open_files(tmp_path)) <= SEGMENTS_MAX
    metrics = case.store.metrics()
    assert metrics["compactions"] > 5 and sum(open_files(tmp_path)) >= metrics["diskBytes"] > 3 * MEMORY
    once = 300 * EPOCH_ROWS * (ROW_BYTES if case.aligned else ROW_BYTES + LIST_BYTES)
    assert metrics["bytesWritten"] <= (2 if case.aligned else 5) * once, "what is rewritten, freed bytes pay for"
    assert 1 <= with_ratios([metrics])["spaceAmplification"] <= LIMIT
    assert case.found == case.expected
    case.store.close()
    assert open_files(tmp_path) == []


def test_what_is_dead_counts_by_its_bytes(kind: str, tmp_path: Path) -> None:
    """Of each epoch's rows most stay, with a letter each; the few others expire, and nearly all bytes with them."""
    rows, long = 200, 4000
    store: Any = STORES[kind](
        LETTERS, range(SHARDS), shard_count=SHARDS, memory_bytes=20_000, folder=str(tmp_path),
        tuning=Tuning(max_space_amplification=LIMIT), undo_epochs=1,
    )  # fmt: skip
    row_bytes = 8 * LETTERS.words + 4 + (0 if kind == "aligned" else LIST_BYTES + 8)
    for epoch in range(30):
        keys = np.arange(epoch * rows, (epoch + 1) * rows)
        leaves = keys % 5 == 0
        store.append(epoch, [frame(letters_of(keys, np.where(leaves, epoch, FAR), np.where(leaves, long, 1)))])
        store.expire(epoch)
        files = open_files(tmp_path)
        needed = epoch * rows * (row_bytes + 1) + rows // 5 * (row_bytes + long)  # the newest epoch is in memory
        assert sum(files) <= LIMIT * needed + 7 * BLOCKS_BYTES * len(files)
        assert with_ratios([store.metrics()]).get("spaceAmplification", 1) <= LIMIT
    assert sum(open_files(tmp_path)) > 29 * rows * row_bytes * 0.8
    store.close()


def test_the_bytes_that_are_needed_are_those_of_the_lists_that_are_there(tmp_path: Path) -> None:
    """Some lists have expired, some were removed: each with strings of its own length."""
    store = AppendUnalignedStore(
        LETTERS, range(SHARDS), shard_count=SHARDS, memory_bytes=0, folder=str(tmp_path), undo_epochs=1,
        tuning=Tuning(max_space_amplification=100.0),
    )  # fmt: skip
    keys = np.arange(1000)
    panes, lengths = keys % 2, keys**2 % 977
    store.append(0, [frame(letters_of(keys, panes, lengths))])
    store.open_epoch(1)
    removed = keys % 10 == 3
    store.remove(letters_of(keys[removed], panes[removed], 0 * keys[removed]))
    store.expire(1)
    store.forget(1)
    sizes = 8 * LETTERS.words + 4 + lengths + LIST_BYTES + 8
    there = (panes == 1) & ~removed
    metrics = store.metrics()
    assert metrics["diskLiveBytes"] / metrics["diskBytes"] == pytest.approx(sizes[there].sum() / sizes.sum(), rel=1e-3)
    store.close()


def test_undo_replay_and_restore_across_a_compaction(kind: str, tmp_path: Path) -> None:
    case = Case(kind, tmp_path)
    undone = 0
    for number in range(90):
        before = case.store.metrics()["compactions"]
        case.epoch()
        compacted = case.store.metrics()["compactions"] > before
        if compacted and number > 40 and undone < 8:
            undone += 1
            case.store.undo(number - 1)
            newest = [case.epochs.pop(), case.epochs.pop()][::-1]
            assert case.store.horizon == case.horizons[number - 1]
            assert case.found == case.expected, "as before the two epochs"
            case.epochs += newest
            case.replay(number - 1)
            case.replay(number)
            assert case.found == case.expected
            shard = number % SHARDS
            case.store.restore(shard, [d[shard] for d in case.deltas if shard in d], case.store.horizon)
            assert case.found == case.expected
    assert undone > 3
    fresh = case.make()
    for shard in range(SHARDS):
        fresh.restore(shard, [d[shard] for d in case.deltas if shard in d], case.store.horizon)
    case.store.close()
    case.store = fresh
    assert case.found == case.expected
    fresh.close()


def test_segments_stay_few_where_nothing_dies(tmp_path: Path) -> None:
    case = Case("aligned", tmp_path, memory=0)
    for _ in range(4 * SEGMENTS_MAX):
        case.epoch(life=FAR)
        assert len(open_files(tmp_path)) <= SEGMENTS_MAX
    assert case.found == case.expected
    row_bytes = 4 * SEGMENTS_MAX * EPOCH_ROWS * ROW_BYTES
    assert case.store.metrics()["bytesWritten"] < 4 * row_bytes, "a row is rewritten seldom"
    case.store.close()


def test_a_cell_larger_than_a_piece_is_rewritten_by_ranges_of_hashes(tmp_path: Path) -> None:
    """Wide rows, of one shard: a pane that stays is larger than what is written at a time."""
    rng = random.Random(random.randrange(2**32))
    keys = draw_keys(rng, 400, 300)
    store = AppendAlignedStore(WIDE, [0], shard_count=1, memory_bytes=0, folder=str(tmp_path), undo_epochs=1)
    kept: dict[tuple[int, int, str], list[str]] = {}
    for epoch in range(6):
        rows = [draw_row(rng, rng.choice(keys), pane) for pane in (0, 0, 1) for _ in range(300)]
        store.append(epoch, [to_frame(rows, 1)])
        for row in rows:
            if row.pane == 1:
                kept.setdefault(row.list_key, []).append(row.shown)
    store.forget(5)
    store.open_epoch(6)
    store.expire(1)
    before = store.disk_bytes
    store.forget(6)
    assert 0 < store.disk_bytes < before and store.metrics()["compactions"] > 0
    found: dict[tuple[int, int, str], list[str]] = {}
    for row in (row for piece in store.read(0, 2, piece_bytes=1000) for row in from_rows(piece)):
        found.setdefault(row.list_key, []).append(row.shown)
    assert found == kept, "also in order of arrival"
    store.close()


def test_a_full_disk_stops_compaction_and_nothing_else(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    case = Case(kind, tmp_path)
    for _ in range(30):
        case.epoch(life=FAR)
    case.store.forget(29)
    done = case.store.metrics()["compactions"]

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, "tailrace.state"):
        patched.setattr(os, "pwrite", full)
        for number in (30, 31, 32):
            case.store.open_epoch(number)
            case.store.expire(FAR)
        assert case.found == case.expected and case.store.metrics()["compactions"] == done
    assert "were not compacted" in caplog.text
    before = case.store.disk_bytes
    case.store.forget(32)
    assert case.store.metrics()["compactions"] > done and case.store.disk_bytes < before / 10
    assert case.found == case.expected
    case.store.close()
