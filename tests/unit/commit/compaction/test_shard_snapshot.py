"""Shard snapshots: which shards, when one pays, and that manifests mean the same with it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.models.commit import RUN, State, compact_newest, sections, state_of, write_delta
from tailrace.commit import shard_ranges as ranges
from tailrace.commit.compaction.compaction import MANY, Compactor, choose, write_shard_snapshot
from tailrace.commit.compaction.shard_snapshot import ShardSnapshot, SnapshotRule, SnapshotScheduler, chains
from tailrace.commit.manifest import EMPTY, Compaction, Manifest, apply_compaction, next_objects
from tailrace.commit.objects import ObjectRef
from tailrace.env.randomness import short_id
from tailrace.env.stores.cloud_store import CloudStore

MB = 1 << 20


def ref(epoch: int, *shards: tuple[int, int]) -> ObjectRef:
    return ObjectRef(f"objects/{epoch}-{shards}", epoch, epoch, shards or ((0, 8),), 1000, (("op", None),))


def test_it_pays_where_epochs_change_much_of_the_state() -> None:
    rule = SnapshotRule(cycle=32, extra=0.5, least_bytes=MB)
    assert rule.at_once(64, changed_bytes=10 * MB, state_bytes=160 * MB) == 2
    assert rule.at_once(64, changed_bytes=10 * MB, state_bytes=161 * MB) == 0, "a cycle would take too many epochs"
    assert rule.at_once(64, changed_bytes=10 * MB, state_bytes=2 * MB) == 64
    assert rule.at_once(64, changed_bytes=MB - 1, state_bytes=2 * MB) == 0, "such an epoch costs its request"
    assert rule.at_once(4, changed_bytes=10 * MB, state_bytes=160 * MB) == 1
    assert rule.at_once(0, changed_bytes=10 * MB, state_bytes=10 * MB) == 0


def test_chains_count_the_objects_of_a_shard() -> None:
    assert chains([ref(0), ref(1, (0, 2), (5, 6)), ref(2, (7, 9))], [1, 3, 5, 7]) == {1: 2, 3: 1, 5: 2, 7: 2}
    assert chains([], [0, 1]) == {0: 0, 1: 0}


def test_the_longest_chains_come_first_and_short_ones_are_left_alone() -> None:
    shard_snapshots = SnapshotScheduler(SnapshotRule(chain=3, extra=1.0, least_bytes=1))
    objects = [ref(epoch) for epoch in range(2)] + [ref(2, (0, 4)), ref(3, (2, 3))]
    shard_snapshots.see(objects, range(8))
    assert shard_snapshots.due(range(8), 250, 1000) == (0, 2), (
        "a quarter of the shards: the longest chain, then by number"
    )
    assert shard_snapshots.due(range(8), 250, 1000) == (1, 3)
    assert shard_snapshots.due(range(8), 250, 1000) == (), "what was asked for a moment ago is on its way"
    assert shard_snapshots.due(range(8), 0, 1000) is None


def test_one_large_epoch_among_small_ones_renews_nothing() -> None:
    shard_snapshots = SnapshotScheduler(SnapshotRule(chain=4, cycle=8, extra=1.0, least_bytes=1))
    shard_snapshots.see([ref(epoch) for epoch in range(9)], range(8))
    assert [shard_snapshots.due(range(8), 0, 1000) for _ in range(4)] == [None] * 4
    assert shard_snapshots.due(range(8), 400, 1000) is None
    assert [shard_snapshots.due(range(8), 400, 1000) is None for _ in range(3)] == [False] * 3, "several of them do"


def test_what_never_came_is_asked_for_again() -> None:
    shard_snapshots = SnapshotScheduler(SnapshotRule(chain=1, extra=1.0, least_bytes=1))
    requested = []
    for epoch in range(6):
        shard_snapshots.see([ref(each) for each in range(epoch + 1)], range(2))
        requested.append(shard_snapshots.due(range(2), 1000, 1000))
    assert requested == [(0, 1), (), (), (), (0, 1), ()]


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32))
def test_every_shard_stays_what_it_was_and_chains_stay_short(seed: int) -> None:
    """Epochs change records at random; snapshots of shards are taken from the state itself, one manifest later."""
    rng = random.Random(seed)
    store = CloudStore(f"memory://{short_id()}", {})
    rule = SnapshotRule(chain=rng.choice([1, 4]), cycle=8, extra=1.0, least_bytes=1)
    shard_snapshots, folder = SnapshotScheduler(rule), Compactor(store, compact_newest, run=RUN, server=0)
    model: State = {}
    objects: tuple[ObjectRef, ...] = ()
    longest = 0
    for epoch in range(40):
        changes: State = {
            (rng.randrange(8), (f"key {rng.randrange(5)}", 0)): rng.randrange(10**6) for _ in range(rng.randint(5, 40))
        }
        model |= changes
        for compact in folder.finished():
            objects = apply_compaction(objects, compact)
        objects = (*objects, write_delta(store, epoch, changes))
        due = shard_snapshots.due(range(8), len(changes), len(model))
        complete = None if due is None else ShardSnapshot(due, {"op": sections(model, due)}, {"op": 0})
        assert state_of(store, Manifest(epoch, RUN, 0, objects), 8, 2) == model
        shard_snapshots.see(objects, range(8))
        folder.submit(Manifest(epoch, RUN, 0, objects), range(8), complete)
        folder.wait()
        longest = max(longest, *chains(objects, range(8)).values())
    assert folder.failure is None
    assert longest <= rule.chain + rule.cycle + 4


@pytest.mark.parametrize("period", [2, 15])
def test_a_manifest_stays_short_where_only_some_epochs_change_much(period: int) -> None:
    """Objects by their sizes alone. Occasional snapshots must not keep small deltas from being compacted for good."""
    shard_snapshots, shards, state_bytes = SnapshotScheduler(), range(64), 400 * MB
    manifest, done = EMPTY, list[Compaction]()
    most = 0
    for epoch in range(600):
        changed = 25 * MB if epoch % period == 0 else MB // 2
        delta = ObjectRef(f"delta {epoch}", epoch, epoch, ((0, 64),), changed, (("op", None),))
        objects, _ = next_objects(manifest, epoch, [delta], done)
        manifest = Manifest(epoch, RUN, 0, objects)
        most = max(most, len(objects))
        due = shard_snapshots.due(shards, changed, state_bytes)
        shard_snapshots.see(objects, shards)
        snapshotted = ranges.of_shards(due or ())
        chosen = [ref for ref in objects if ranges.common(ref.shards, snapshotted)] if due else choose(objects, shards)
        done = []
        if chosen and (due or due is None):
            first, last = min(ref.first_epoch for ref in chosen), max(ref.last_epoch for ref in chosen)
            size = state_bytes * len(due or shards) // 64 if first == 0 else sum(ref.bytes for ref in chosen)
            made = ObjectRef(f"fold {epoch}", first, last, snapshotted or ((0, 64),), size, (("op", None),))
            done = [Compaction(tuple(chosen), made)]
    assert most <= MANY + 1


def test_a_shard_snapshot_stands_for_its_shards_alone() -> None:
    store = CloudStore(f"memory://{short_id()}", {})
    complete = ShardSnapshot((1, 2), {"op": sections({(1, ("a", 0)): 5}, (1, 2))}, {"op": 0})
    replaced = [ref(3), ref(4, (2, 4))]
    compact = write_shard_snapshot(store, complete, replaced, 7, RUN, 0)
    assert (compact.ref.first_epoch, compact.ref.last_epoch, compact.ref.shards) == (3, 7, ((1, 3),))
    left = {each.name: each.shards for each in apply_compaction([*replaced, ref(8)], compact)}
    assert left == {
        ref(3).name: ((0, 1), (3, 8)),
        ref(4, (2, 4)).name: ((3, 4),),
        ref(8).name: ((0, 8),),
        compact.ref.name: ((1, 3),),
    }


def test_a_shard_snapshot_of_an_epoch_that_is_tried_again_is_left_out() -> None:
    """Its own epoch's delta may be none of what it replaces: it is dead where a window has closed with that epoch."""
    shard_snapshot = Compaction((ref(3),), ObjectRef("objects/snapshot", 3, 4, ((0, 4),), 1000, (("op", None),)))
    objects, used = next_objects(Manifest(3, RUN, 0, (ref(3),)), 4, [ref(4)], [shard_snapshot])
    assert objects == (ref(3), ref(4)) and used == ()


def test_where_shards_have_snapshots_nothing_is_compacted() -> None:
    store = CloudStore(f"memory://{short_id()}", {})

    def never(*_: object) -> object:
        raise AssertionError("objects were read")

    folder = Compactor(store, never, run=RUN, server=0, choose=lambda objects, _: tuple(objects))  # type: ignore[arg-type]
    folder.submit(Manifest(1, RUN, 0, (ref(0), ref(1))), range(8), ShardSnapshot((), {}, {}))
    folder.wait()
    assert folder.finished() == [] and folder.failure is None


@pytest.mark.parametrize("died", [True, False])
def test_nothing_is_written_for_shards_that_have_no_object_left(died: bool) -> None:
    store = CloudStore(f"memory://{short_id()}", {})
    folder = Compactor(store, compact_newest, run=RUN, server=0)
    max_pane = (("op", 5),)
    only = ObjectRef("objects/a", 0, 0, ((0, 8),), 1000, max_pane)
    manifest = Manifest(0, RUN, 0, (only,), horizons={"op": 6 if died else 5})
    folder.submit(manifest, range(8), ShardSnapshot((1,), {"op": sections({(1, ("a", 9)): 5}, (1,))}, {}))
    folder.wait()
    assert len(folder.finished()) == (0 if died else 1)
