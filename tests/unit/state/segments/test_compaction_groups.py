"""Many spilled records are merged one compaction group at a time."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from support.stores.spilled_keys import NO_HORIZON, SUM, SpilledKeys
from tailrace.env.files.scratch import ScratchFile, temporary_folder
from tailrace.state.segments import compaction_groups as compaction_groups
from tailrace.state.segments.compaction_groups import (
    COMPACTION_GROUPS_MAX,
    EVERY,
    CompactionGroup,
    compaction_groups_for,
)

SHARDS = 24
SEGMENT = 2_000
"""Keys that leave memory at once; 80 kB."""


@contextmanager
def store_of(max_space_amplification: float = 2.0) -> Iterator[SpilledKeys]:
    with temporary_folder() as folder:
        store = SpilledKeys(folder, SHARDS, max_space_amplification=max_space_amplification)
        yield store
        store.spilled.close()


@pytest.fixture(autouse=True)
def small_compaction_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_groups, "COMPACTION_GROUP_BYTES", 500_000)


def fill(store: SpilledKeys, segments: range) -> None:
    """A segment in each epoch; what it may do to others is done before the next."""
    for number in segments:
        store.put(np.arange(number * SEGMENT, (number + 1) * SEGMENT))
        store.spilled.compact(NO_HORIZON)


def every(segments: int) -> np.ndarray:
    return np.arange(segments * SEGMENT)


def test_there_are_as_many_compaction_groups_as_the_bytes_need_up_to_a_limit() -> None:
    assert [compaction_groups_for(bytes_) for bytes_ in (0, 500_000, 500_001, 1_100_000, 10**12)] == [
        1,
        1,
        2,
        4,
        COMPACTION_GROUPS_MAX,
    ]


@pytest.mark.parametrize("shard", range(20))
def test_each_shard_is_in_one_group_and_a_finer_group_inside_a_coarser_one(shard: int) -> None:
    coarse, fine = (
        [compaction_group for compaction_group in EVERY.cut(count) if compaction_group.holds(shard)] for count in (2, 8)
    )
    assert (len(coarse), len(fine)) == (1, 1)
    assert fine[0].within(2) == coarse[0]
    assert fine[0] in coarse[0].cut(8)


def test_no_small_segments_are_made_for_groups() -> None:
    assert CompactionGroup(2, 1).parted(8, 4 * 500_000 // 16) == CompactionGroup(2, 1).cut(8)
    assert CompactionGroup(2, 1).parted(8, 4 * 500_000 // 16 - 1) == [CompactionGroup(2, 1)]
    assert CompactionGroup(8, 1).parted(2, 1) == [CompactionGroup(8, 1)]


def test_little_is_merged_into_one() -> None:
    with store_of() as store:
        fill(store, range(5))
        assert [segment.compaction_group for segment in store.spilled._segments] == [EVERY] * 5


def test_records_are_found_whatever_group_they_came_to() -> None:
    with store_of() as store:
        fill(store, range(80))
        used = {segment.compaction_group for segment in store.spilled._segments}
        assert {compaction_group.count for compaction_group in used} >= {4, COMPACTION_GROUPS_MAX}
        for segment in store.spilled._segments:
            assert all(map(segment.compaction_group.holds, segment.shards.tolist()))
        assert (store.read() == every(80)).all()
        assert (store.found(every(90)) == every(80)).all()
        assert len(store.spilled._segments) < 10 * len(used)


def test_no_epoch_merges_more_than_one_group() -> None:
    with store_of() as store:
        written: list[int] = []
        for number in range(120):
            store.put(np.arange(number * SEGMENT, (number + 1) * SEGMENT))
            before = {segment.uid for segment in store.spilled._segments}
            store.spilled.compact(NO_HORIZON)
            written.append(sum(s.disk_bytes for s in store.spilled._segments if s.uid not in before))
        assert max(written) < store.spilled.disk_bytes / 4
        assert (store.read() == every(120)).all()


def test_what_an_epoch_took_can_be_undone_after_its_segments_were_parted() -> None:
    with store_of() as store:
        fill(store, range(12))
        taken = np.arange(3, 12 * SEGMENT, 5)
        assert store.take(0, taken) == len(taken)
        before = list(store.spilled._segments)
        fill(store, range(12, 60))
        assert len(set(before) - set(store.spilled._segments)) >= 4
        assert (store.read() == np.setdiff1d(every(60), taken)).all()
        store.spilled.undo(0)
        assert (store.read() == every(60)).all()
        assert store.take(1, taken) == len(taken)
        store.spilled.forget(1)
        assert (store.found(every(60)) == np.setdiff1d(every(60), taken)).all()


def test_what_was_removed_where_it_lay_is_reported_after_its_segments_were_parted() -> None:
    with store_of() as store:
        fill(store, range(12))
        keys = np.arange(12 * SEGMENT)[-5:]
        rows, bounds = store.by_shard(keys)
        for shard in np.flatnonzero(np.diff(bounds)).tolist():
            for found in store.spilled.find(shard, rows, np.arange(bounds[shard], bounds[shard + 1]), NO_HORIZON):
                store.spilled.remove_found(0, found, np.ones(len(found.at), bool))
        fill(store, range(12, 60))
        gone, shards = store.spilled.removed(0)
        assert sorted(gone.words[:, SUM].tolist()) == keys.tolist()
        assert (shards == gone.words[:, SUM] % SHARDS).all()


def test_disk_holds_no_more_than_the_allowed_share_of_dead_records_in_groups_too() -> None:
    with store_of(max_space_amplification=1.2) as store:
        fill(store, range(40))
        live = every(40)
        rng = np.random.default_rng(1)
        for epoch in range(40):
            gone = rng.choice(live, 1_500, replace=False)
            live = np.setdiff1d(live, gone)
            assert store.take(epoch, gone) == len(gone)
            store.spilled.forget(epoch)
            store.spilled.compact(NO_HORIZON)
            assert store.spilled.disk_bytes <= 1.2 * len(live) * 40
        assert (store.read() == live).all()
        assert EVERY not in {segment.compaction_group for segment in store.spilled._segments}


def test_shards_leave_their_groups() -> None:
    with store_of() as store:
        fill(store, range(40))
        gone = [0, 5, 8, 16, 23]
        for shard in gone:
            store.spilled.drop_shard(shard)
        store.spilled.compact(NO_HORIZON)
        left = every(40)[~np.isin(every(40) % SHARDS, gone)]
        assert (store.read() == left).all()
        fill(store, range(40, 60))
        assert (store.found(every(60)) == np.append(left, np.arange(40 * SEGMENT, 60 * SEGMENT))).all()


def test_groups_come_together_again_when_little_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    with store_of() as store:
        fill(store, range(60))
        monkeypatch.setattr(compaction_groups, "COMPACTION_GROUP_BYTES", 1 << 30)
        fill(store, range(60, 200))
        assert len(store.spilled._segments) < 30
        assert (store.read() == every(200)).all()


@pytest.mark.parametrize("fails_at", [1, 4, 30, 45])
def test_a_full_disk_in_the_midst_of_groups_leaves_the_old_segments(
    monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    with store_of() as store:
        fill(store, range(39))
        while True:
            store.put(np.arange(SEGMENT) + store.read()[-1] + 1)
            mixed = [segment for segment in store.spilled._segments if segment.compaction_group == EVERY]
            if len(mixed) >= 8:
                break
        writes = [0]
        real = ScratchFile.write

        def fail(self: ScratchFile, array: np.ndarray, offset: int) -> None:
            writes[0] += 1
            if writes[0] > fails_at:
                raise OSError(errno.ENOSPC, "no space left")
            real(self, array, offset)

        want, before = store.read(), list(store.spilled._segments)
        monkeypatch.setattr(ScratchFile, "write", fail)
        store.spilled.compact(NO_HORIZON)
        assert writes[0] > fails_at
        assert store.spilled._segments == before
        monkeypatch.undo()
        assert (store.read() == want).all()


def test_a_group_is_not_cut_by_fewer_groups_than_its_own() -> None:
    assert CompactionGroup(8, 3).cut(2) == [CompactionGroup(8, 3)]
