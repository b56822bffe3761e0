"""What append stores promise besides their rows: a memory budget, no files left, predicted reads, little compaction."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailrace.operators.ingest.frame import by_shard
from tailrace.state.append.aligned import AppendAlignedStore
from tailrace.state.append.list_instance import Stats
from tailrace.state.append.unaligned import AppendUnalignedStore
from tailrace.state.layout import Merge, record_layout
from tailrace.state.rows.rows import Rows
from tailrace.state.tuning import Tuning
from tailrace.types import BIGINT, Field

LAYOUT = record_layout([Field("k", BIGINT)], [(Merge.ROW, BIGINT)], ansi=False)
ROW_BYTES = 8 * LAYOUT.words
SHARDS = 4
STORES = [AppendAlignedStore, AppendUnalignedStore]
MEMORY = 200_000
EPOCH_ROWS = 1000


def rows_of(keys: np.ndarray, panes: np.ndarray | int, values: np.ndarray | int = 0) -> Rows:
    words = np.zeros((len(keys), LAYOUT.words), np.int64)
    words[:, 0] = (keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(np.int64)
    words[:, 1], words[:, 2], words[:, 3], words[:, 4] = panes, 3, keys, values
    return Rows(words, np.empty(0, np.uint8))


def frame(rows: Rows) -> tuple[Rows, np.ndarray]:
    return by_shard(rows, SHARDS).parts()


def open_files(folder: Path) -> int:
    """Files in the folder that this process holds open: they have no name, so only this shows them."""
    links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    return sum(1 for link in links if os.path.islink(link) and os.readlink(link).startswith(str(folder)))


def mapped_files(folder: Path) -> int:
    return sum(1 for line in Path("/proc/self/maps").read_text().splitlines() if str(folder) in line)


@pytest.fixture(params=STORES, ids=["aligned", "unaligned"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    made = request.param(LAYOUT, range(SHARDS), shard_count=SHARDS, memory_bytes=MEMORY, folder=str(tmp_path))
    yield made
    made.close()


def test_memory_is_held_while_state_grows_to_many_times_the_budget(store: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(random.randrange(2**32))
    undoable = 2 * EPOCH_ROWS * (ROW_BYTES + 64)
    for epoch in range(60):
        store.append(epoch, [frame(rows_of(rng.integers(0, 500, EPOCH_ROWS), epoch // 20 * 10))])
        assert store.nbytes <= MEMORY + undoable
    assert store.rows == 60 * EPOCH_ROWS
    assert store.disk_bytes > 5 * MEMORY
    assert 0 < open_files(tmp_path) < 50 and os.listdir(tmp_path) == [], "segments have no names"


def test_files_go_with_their_windows_and_with_the_store(store: Any, tmp_path: Path) -> None:
    for epoch in range(40):
        store.append(epoch, [frame(rows_of(np.arange(EPOCH_ROWS), epoch // 10 * 10))])
    before = store.disk_bytes
    store.expire(20)
    assert store.disk_bytes == before, "an eviction can be undone"
    for epoch in range(40, 43):
        store.open_epoch(epoch)
    if isinstance(store, AppendAlignedStore):
        assert store.rows == 20 * EPOCH_ROWS
    store.expire(40)
    for epoch in range(43, 46):
        store.open_epoch(epoch)
    assert store.rows == store.disk_bytes == 0
    assert open_files(tmp_path) == mapped_files(tmp_path) == 0
    store.append(46, [frame(rows_of(np.arange(50_000), 50))])
    store.forget(46)
    assert open_files(tmp_path) > 0
    store.close()
    assert open_files(tmp_path) == mapped_files(tmp_path) == 0


def test_an_undone_epoch_leaves_nothing(store: Any) -> None:
    for epoch in range(5):
        store.append(epoch, [frame(rows_of(np.arange(EPOCH_ROWS), 0))])
    store.forget(4)
    facts = (store.rows, store.nbytes, store.disk_bytes, store.horizon)
    for _ in range(20):
        store.append(5, [frame(rows_of(np.arange(EPOCH_ROWS), 0))])
        store.expire(100)
        store.undo(5)
    assert (store.rows, store.nbytes, store.disk_bytes, store.horizon) == facts


def contents(store: Any, keys: np.ndarray, panes: list[int]) -> list[tuple[int, int, int]]:
    """(pane, key, value) of these keys, sorted by the first two: the order of values is the store's."""
    if isinstance(store, AppendAlignedStore):
        found = np.concatenate([_NOTHING, *(rows.words for rows in store.read(min(panes), max(panes) + 1))])
    else:
        found = np.concatenate([store.read(rows_of(keys, pane), remove=False)[0].words for pane in panes])
    return sorted(map(tuple, found[:, [1, 3, 4]].tolist()), key=lambda row: row[:2])


_NOTHING = np.empty((0, LAYOUT.words), np.int64)


def test_an_eviction_that_is_undone_brings_back_every_row(store: Any) -> None:
    """Also where the epochs after it have merged and written, and would have had reason to leave rows out."""
    keys = np.arange(EPOCH_ROWS)
    for epoch in range(30):
        store.append(epoch, [frame(rows_of(keys, epoch % 3 * 10, epoch))])
    before = contents(store, keys, [0, 10, 20])
    assert len(before) == 30 * EPOCH_ROWS
    store.append(30, [frame(rows_of(keys, 20, 30))])
    store.expire(20)
    assert {pane for pane, _, _ in contents(store, keys, [0, 10, 20])} == {20}
    store.append(31, [frame(rows_of(keys, 20, 31))])
    store.undo(30)
    assert contents(store, keys, [0, 10, 20]) == before


@pytest.mark.parametrize("memory", [10**9, 10**6])
@pytest.mark.parametrize("kind", STORES, ids=["aligned", "unaligned"])
def test_many_rows_in_and_out(kind: Any, memory: int, tmp_path: Path) -> None:
    """Enough for every fast path: radix sort on some of the bits, threads, pieces of segments."""
    rng = np.random.default_rng(random.randrange(2**32))
    store = kind(LAYOUT, range(SHARDS), shard_count=SHARDS, memory_bytes=memory, folder=str(tmp_path))
    everything = []
    for epoch in range(5):
        keys, panes = rng.integers(0, 5000, 30_000), 10 * rng.integers(0, 3, 30_000)
        values = np.arange(epoch * 30_000, (epoch + 1) * 30_000)
        halves = [slice(0, 10_000), slice(10_000, None)]
        store.append(epoch, [frame(rows_of(keys[h], panes[h], values[h])) for h in halves])
        everything.append(np.stack([panes, keys, values], 1))
    expected = sorted(map(tuple, np.concatenate(everything).tolist()))
    assert contents(store, np.arange(5000), [0, 10, 20]) == expected
    assert (store.disk_bytes > 0) == (memory < 10**9)
    store.close()


def test_misuse_is_refused(store: Any) -> None:
    with pytest.raises(ValueError, match="no epoch is open"):
        store.expire(1)
    store.append(3, [frame(rows_of(np.arange(9), 0))])
    with pytest.raises(ValueError, match="already applied"):
        store.append(3, [])
    store.drop_shard(1)
    with pytest.raises(ValueError, match="not kept here"):
        store.append(4, [frame(rows_of(np.arange(9), 0))])
    with pytest.raises(ValueError, match="bounds of 2 shards"):
        store.append(4, [by_shard(rows_of(np.arange(9), 0), 2).parts()])
    assert store.newest_epoch == 3


def test_a_full_disk_loses_nothing(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for epoch in range(4):
        store.append(epoch, [frame(rows_of(np.arange(EPOCH_ROWS), 0))])

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space"):
        for epoch in range(4, 40):
            store.append(epoch, [frame(rows_of(np.arange(EPOCH_ROWS), 0))])
    newest = store.newest_epoch
    monkeypatch.undo()
    assert store.rows == (newest + 1) * EPOCH_ROWS
    store.append(newest + 1, [frame(rows_of(np.arange(EPOCH_ROWS), 0))])
    assert store.rows == (newest + 2) * EPOCH_ROWS


def test_a_piece_is_bounded_where_one_shard_is_large(tmp_path: Path) -> None:
    rng = np.random.default_rng(random.randrange(2**32))
    for memory, near in ((10**9, False), (10**9, True), (50_000, False), (50_000, True)):
        store = AppendAlignedStore(LAYOUT, [0], shard_count=1, memory_bytes=memory, folder=str(tmp_path))
        for epoch in range(10):
            rows = rows_of(rng.integers(0, 2000, 5000), 10 * rng.integers(0, 3, 5000))
            if near:  # all hashes in one bucket of buckets, on both sides of 0
                rows.words[:, 0] = rows.words[:, 3] - 1000
            store.append(epoch, [by_shard(rows, 1).parts()])
        bound = 100 * ROW_BYTES
        pieces = list(store.read(0, 30, piece_bytes=bound))
        assert sum(map(len, pieces)) == 50_000
        assert all(len(piece) * ROW_BYTES <= bound or len(np.unique(piece.words[:, 0])) == 1 for piece in pieces)
        assert len(pieces) < 2.5 * 50_000 / 100
        seen = np.concatenate([np.unique(piece.words[:, 3]) for piece in pieces])
        assert len(seen) == len(np.unique(seen)), "a key lies in two pieces"
        store.close()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("memory", [0, 10**9])
def test_a_reader_sees_its_moment_whatever_happens_meanwhile(tmp_path: Path, memory: int, threads: int) -> None:
    store = AppendAlignedStore(
        LAYOUT, range(SHARDS), shard_count=SHARDS, memory_bytes=memory, folder=str(tmp_path), threads=threads
    )
    for epoch in range(6):
        store.append(epoch, [frame(rows_of(np.arange(1000), 0, epoch))])
    reader = store.read(0, 1, piece_bytes=50 * ROW_BYTES)
    first = next(reader)
    store.append(6, [frame(rows_of(np.arange(1000), 0, 6))])
    store.expire(100)
    store.forget(6)
    assert store.rows == store.disk_bytes == 0
    assert mapped_files(tmp_path) > 0 or memory
    assert len(first) + sum(map(len, reader)) == 6000
    assert mapped_files(tmp_path) == 0
    store.close()


# Prediction ----------------------------------------------------------------------------------------------------------


GAP = 800


def sessions(folder: Path, ratio: float, seed: int, epochs: int = 150) -> Stats:
    """Sessions that end after a gap without rows, five an epoch, checked against a dict of lists."""
    rng = random.Random(seed)
    store = AppendUnalignedStore(
        LAYOUT,
        range(SHARDS),
        shard_count=SHARDS,
        memory_bytes=100_000,
        folder=str(folder),
        tuning=Tuning(read_batch_ratio=ratio),
    )
    lists: dict[int, list[int]] = {}
    ends: dict[int, int] = {}
    written = 0
    for now in range(-GAP // 10, epochs):
        # The first epochs bring ten times as many sessions, whose ends lie in the time that is looked at.
        fresh = [rng.getrandbits(40) for _ in range(5 if now >= 0 else 50)]
        # Some sessions go on, one of them shortly before its end: the estimate was wrong.
        again = [rng.choice(sorted(ends, key=ends.__getitem__)[:40]), *rng.sample(list(lists), 2)] if now > 0 else []
        keys = [key for key in [*fresh, *fresh, *again] if now < 0 or ends.get(key, now + 1) > now]
        values = list(range(written, written + len(keys)))
        written += len(keys)
        for key, value in zip(keys, values, strict=True):
            lists.setdefault(key, []).append(value)
            ends[key] = now + GAP if now >= 0 else ends.get(key) or rng.randrange(1, GAP)
        made = frame(rows_of(np.array(keys), 0, np.array(values)))
        triggers = np.array([ends[key] for key in made[0].words[:, 3].tolist()], np.int64)
        store.append(now, [made], [triggers])
        due = [key for key, end in ends.items() if end <= now]
        rows, offsets = store.read(rows_of(np.array(due, np.int64), 0), remove=True)
        for number, key in enumerate(due):
            assert rows.words[offsets[number] : offsets[number + 1], 4].tolist() == lists.pop(key)
            del ends[key]
    stats = store.stats()
    assert store.rows == sum(map(len, lists.values()))
    store.close()
    return stats


def test_sessions_are_read_before_they_are_asked_for(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    blind, seeing = (sessions(tmp_path, ratio, seed) for ratio in (0.0, 0.02))
    assert blind.hits == blind.lists_prefetched == 0
    assert seeing.hits + seeing.misses == blind.misses > 300
    assert seeing.hits >= 0.93 * (seeing.hits + seeing.misses), seeing
    assert seeing.index_scans * 5 < blind.index_scans
    assert 0 < seeing.lists_evicted < seeing.lists_prefetched


def test_what_is_read_in_waves_is_there_before_the_next_wave(tmp_path: Path) -> None:
    """The buffer is filled again as soon as it holds less than one wave took; the first wave alone is missed."""
    store = AppendUnalignedStore(
        LAYOUT, range(SHARDS), shard_count=SHARDS, memory_bytes=400_000, folder=str(tmp_path), instances=1,
        undo_epochs=1,
    )  # fmt: skip
    ends = np.random.default_rng(random.randrange(2**32)).permutation(20_000)  # by key
    for epoch in range(20):
        made = frame(rows_of(np.arange(epoch * 1000, (epoch + 1) * 1000), 0))
        store.append(epoch, [made], [ends[made[0].words[:, 3]]])
    by_end = np.argsort(ends)
    for wave in range(30):  # of 150 lists; a fiftieth of all that lie on disk is 300 or more
        store.open_epoch(20 + wave)
        rows, _ = store.read(rows_of(by_end[wave * 150 : (wave + 1) * 150], 0), remove=True)
        assert len(rows) == 150
    stats = store.stats()
    assert stats.hits + stats.misses > 3000, "most lay on disk"
    assert stats.misses <= 150 and stats.index_scans <= 31
    store.close()


def test_segments_that_end_later_are_not_looked_at(tmp_path: Path) -> None:
    store = AppendUnalignedStore(
        LAYOUT, range(SHARDS), shard_count=SHARDS, memory_bytes=200_000, folder=str(tmp_path), instances=1,
        undo_epochs=1,
    )  # fmt: skip
    lists = 60_000
    for epoch in range(60):  # keys end in the order in which they came
        made = frame(rows_of(np.arange(epoch * 1000, (epoch + 1) * 1000), 0))
        store.append(epoch, [made], [made[0].words[:, 3].copy()])
    before = store.stats().bytes_read
    for key in range(10):
        assert len(store.read(rows_of(np.arange(key, key + 1), 0), remove=True)[0]) == 1
    stats = store.stats()
    assert stats.misses == 1 and stats.hits == 9
    assert stats.bytes_read - before < 8 * lists, "not even the times of all lists were read"
    store.close()


def test_rows_that_reach_the_disk_behind_a_hinted_list_are_not_missed(tmp_path: Path) -> None:
    store = AppendUnalignedStore(
        LAYOUT, range(SHARDS), shard_count=SHARDS, memory_bytes=200_000, folder=str(tmp_path), instances=1,
        tuning=Tuning(read_batch_ratio=1.0), undo_epochs=1,
    )  # fmt: skip
    keys = np.arange(200)
    times = [np.full(len(keys), 5)]
    store.append(0, [frame(rows_of(keys, 0, 0))], times)
    store.append(1, [frame(rows_of(np.arange(1000, 9000), 0))])
    store.append(2, [frame(rows_of(keys, 0, 2))], times)  # forgotten, so 0 and 1 lie on disk; 2 stays in memory
    store.append(3, [])
    assert store.disk_bytes > 0
    store.read(rows_of(keys[:1], 0), remove=False)  # a miss: every list is copied
    assert store.stats().lists_prefetched >= 199
    store.append(4, [frame(rows_of(np.arange(20_000, 28_000), 0))])
    written = store.disk_bytes
    store.append(5, [])
    assert store.disk_bytes > written, "2 has been written"
    rows, offsets = store.read(rows_of(keys, 0), remove=False)
    assert (np.diff(offsets) == 2).all() and rows.words[:, 4].tolist() == [0, 2] * len(keys)
    store.close()


def test_a_restored_shard_keeps_what_was_removed_from_its_forerunner(tmp_path: Path) -> None:
    store = AppendUnalignedStore(LAYOUT, [0], shard_count=1, memory_bytes=10**6, folder=str(tmp_path))
    store.append(0, [by_shard(rows_of(np.arange(10), 0), 1).parts()])
    sections = store.delta()
    store.append(1, [])
    store.remove(rows_of(np.arange(5), 0))
    assert store.delta()[0].num_rows == 5
    store.restore(0, sections.values(), store.horizon)
    assert store.delta() == {}
    store.close()


def test_lists_whose_time_is_unknown_get_no_hint(tmp_path: Path) -> None:
    store = AppendUnalignedStore(
        LAYOUT,
        range(SHARDS),
        shard_count=SHARDS,
        memory_bytes=20_000,
        folder=str(tmp_path),
        tuning=Tuning(read_batch_ratio=1.0),
    )
    for epoch in range(10):
        keys = np.arange(epoch * 300, (epoch + 1) * 300)
        store.append(epoch, [frame(rows_of(keys, 0))], None)
    store.read(rows_of(np.arange(10), 0), remove=True)
    assert store.stats().misses == 10 and store.stats().lists_prefetched == 0
    store.close()


def test_disk_is_rewritten_only_when_enough_of_it_is_dead(tmp_path: Path) -> None:
    results = {}
    order = np.random.default_rng(0).permutation(12_000)  # or whole segments would die, and go without rewriting
    for limit in (1.1, 2.0):
        store = AppendUnalignedStore(
            LAYOUT, range(SHARDS), shard_count=SHARDS, memory_bytes=100_000, folder=str(tmp_path), instances=1,
            tuning=Tuning(max_space_amplification=limit), undo_epochs=1,
        )  # fmt: skip
        for epoch in range(6):
            store.append(epoch, [frame(rows_of(np.arange(epoch * 2000, (epoch + 1) * 2000), 0))])
        before = store.stats().compactions
        first = store.disk_bytes
        for step in range(40):
            store.open_epoch(6 + step)
            store.remove(rows_of(order[step * 200 : (step + 1) * 200], 0))
        results[limit] = store.stats().compactions - before
        assert store.disk_bytes <= first
        store.close()
    assert results[1.1] > results[2.0] >= 1
