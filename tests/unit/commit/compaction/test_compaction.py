"""Checkpoint compaction: which objects it takes, and that the state stays the same."""

from __future__ import annotations

import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.models.commit import RUN, compact_newest, section, state_of, write_delta
from tailrace.commit.compaction.compaction import FAN_IN, Compactor, choose, compact_objects
from tailrace.commit.manifest import Compaction, Manifest, apply_compaction
from tailrace.commit.objects import ObjectRef, open_object
from tailrace.env.randomness import short_id
from tailrace.env.stores.cloud_store import CloudStore


def memory() -> CloudStore:
    return CloudStore(f"memory://{short_id()}", {})


def ref(epoch: int, size: int, *shards: tuple[int, int], last: int | None = None) -> ObjectRef:
    return ObjectRef(
        f"objects/{epoch}-{shards}", epoch, epoch if last is None else last, shards or ((0, 8),), size, (("op", None),)
    )


def test_few_objects_are_left_alone() -> None:
    assert choose([ref(epoch, 1000) for epoch in range(FAN_IN - 1)], range(8)) == ()
    assert choose([], range(8)) == ()


def test_small_newest_objects_are_compacted_without_the_large_old_one() -> None:
    objects = [ref(0, 1 << 30), *(ref(epoch, 1000) for epoch in range(1, 1 + FAN_IN))]
    assert choose(objects, range(8)) == tuple(objects[1:])


def test_everything_is_compacted_once_it_outweighs_the_oldest() -> None:
    objects = [ref(0, 8 << 20), *(ref(epoch, 2 << 20) for epoch in range(1, FAN_IN))]
    assert choose(objects, range(8)) == tuple(objects)


def test_objects_of_other_shards_do_not_count() -> None:
    mine = [ref(epoch, 1000, (0, 4)) for epoch in range(5)]
    others = [ref(epoch, 1000, (4, 8)) for epoch in range(20)]
    assert choose([*mine, *others], range(4)) == ()


def test_objects_whose_epochs_overlap_are_compacted_together() -> None:
    old = [ref(0, 1000, (0, 4), last=9), ref(0, 1000, (4, 6), last=4), ref(5, 1000, (4, 6), last=9)]
    new = [ref(epoch, 1000) for epoch in range(10, 10 + FAN_IN)]
    assert set(choose([*old, *new], range(6))) == {*old, *new}


def test_the_cost_is_logarithmic_and_space_is_bounded() -> None:
    """Epochs of equal size over a state of fixed size: bytes written by compactions, and what a restart would read."""
    delta, state = 100_000, 50_000_000
    objects: tuple[ObjectRef, ...] = ()
    compacted = worst = 0
    for epoch in range(3000):
        objects = (*objects, ref(epoch, delta))
        if chosen := choose(objects, range(8)):
            size = min(state, sum(each.bytes for each in chosen))
            new = ObjectRef(
                f"fold {epoch}", chosen[0].first_epoch, chosen[-1].last_epoch, ((0, 8),), size, (("op", None),)
            )
            objects = apply_compaction(objects, Compaction(chosen, new))
            compacted += size
        if epoch > 1000:
            worst = max(worst, sum(each.bytes for each in objects))
        assert len(objects) < 50
    print(f"folds write {compacted / (3000 * delta):.2f} times what epochs write")
    assert compacted < 3 * 3000 * delta
    assert worst < 3.2 * state


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32))
def test_a_compaction_means_what_its_objects_meant(seed: int) -> None:
    rng, store = random.Random(seed), memory()
    objects: tuple[ObjectRef, ...] = ()
    horizon = 0
    for epoch in range(8):
        horizon = max(horizon, epoch - 3)
        changes = {
            (rng.randrange(8), (f"k{rng.randrange(5)}", epoch - rng.randrange(3))): rng.randrange(99) for _ in range(9)
        }
        objects = (*objects, write_delta(store, epoch, changes, horizon))
    before = Manifest(epoch=7, run=RUN, try_=0, objects=objects, horizons={"op": horizon})
    state = state_of(store, before, 8, 1)
    for _ in range(6):
        start = rng.randrange(len(objects))
        chosen = objects[start : start + rng.randint(1, 4)]
        shards = range(rng.randrange(0, 4), rng.randrange(4, 9))
        compact = compact_objects(store, chosen, shards, compact_newest, run=RUN, server=1, horizons={"op": horizon})
        assert compact.ref.bytes == len(store.get(compact.ref.name))
        try:
            objects = apply_compaction(objects, compact)
        except ValueError:
            continue
        after = Manifest(epoch=7, run=RUN, try_=0, objects=objects, horizons={"op": horizon})
        assert state_of(store, after, 8, rng.choice([1, 3])) == state


def test_a_compaction_is_made_one_shard_at_a_time() -> None:
    store = memory()
    refs = [write_delta(store, epoch, {(shard, ("k", 0)): epoch for shard in range(8)}) for epoch in range(3)]
    seen: list[int] = []

    def compact(operator, batches, horizon, complete):
        seen.append(len(batches))
        return compact_newest(operator, batches, horizon)

    result = compact_objects(store, refs, range(8), compact, run=RUN, server=0)
    assert seen == [3] * 8
    open_object(store, result.ref).verify()


class Gate:
    """A merge that waits until the test lets it go on."""

    def __init__(self) -> None:
        self.started, self.open = threading.Event(), threading.Event()

    def __call__(self, operator, batches, horizon, complete):
        self.started.set()
        assert self.open.wait(20)
        return compact_newest(operator, batches, horizon)


def test_the_compactor_offers_an_object_until_it_is_used() -> None:
    store, gate = memory(), Gate()
    folder = Compactor(store, gate, run=RUN, server=0)
    objects = tuple(write_delta(store, epoch, {(0, ("k", 0)): epoch}) for epoch in range(FAN_IN))
    folder.submit(Manifest(FAN_IN - 2, RUN, 0, objects[:-1]), range(8))
    assert not gate.started.is_set()
    folder.submit(Manifest(FAN_IN - 1, RUN, 0, objects), range(8))
    assert gate.started.wait(20)
    assert folder.finished() == []
    folder.submit(Manifest(FAN_IN - 1, RUN, 0, objects), range(8))  # busy: nothing happens
    gate.open.set()
    folder.wait(20)
    (compact,) = folder.finished()
    assert compact.replaces == objects
    folder.submit(Manifest(FAN_IN, RUN, 0, objects), range(8))  # the epoch that carried it failed: it is still on offer
    assert folder.finished() == [compact]
    folder.submit(Manifest(FAN_IN, RUN, 0, apply_compaction(objects, compact)), range(8))
    assert folder.finished() == []
    folder.close()


def test_folder_stops_between_two_shards_and_leaves_nothing() -> None:
    store, gate = memory(), Gate()
    folder = Compactor(store, gate, run=RUN, server=0)
    objects = tuple(write_delta(store, epoch, {(s, ("k", 0)): epoch for s in range(8)}) for epoch in range(FAN_IN))
    folder.submit(Manifest(FAN_IN - 1, RUN, 0, objects), range(8))
    assert gate.started.wait(20)
    closing = threading.Thread(target=folder.close)
    closing.start()
    while not folder._stopping.is_set():
        pass
    gate.open.set()
    closing.join(20)
    assert folder.finished() == [] and folder.failure is None
    assert len(store.list("objects/")) == FAN_IN


def test_a_compaction_waits_for_a_good_time_before_each_shard() -> None:
    store = memory()
    requested: list[int] = []
    done: list[int] = []

    def compact(operator, batches, horizon, complete):
        done.append(len(requested))
        return compact_newest(operator, batches, horizon)

    folder = Compactor(store, compact, run=RUN, server=0, throttle=lambda: requested.append(len(done)))
    objects = tuple(write_delta(store, epoch, {(s, ("k", 0)): epoch for s in range(8)}) for epoch in range(FAN_IN))
    folder.submit(Manifest(FAN_IN - 1, RUN, 0, objects), range(8))
    folder.wait(20)
    assert folder.finished()
    assert requested == [*range(8)] and done == [*range(1, 9)]
    folder.close()


def test_a_failing_fold_is_kept_apart_and_tried_again(caplog) -> None:
    store = memory()
    objects = tuple(write_delta(store, epoch, {(0, ("k", 0)): epoch}) for epoch in range(FAN_IN))
    good = store.get(objects[3].name)
    store.put(objects[3].name, [b"x" * len(good)])
    folder = Compactor(store, compact_newest, run=RUN, server=0)
    folder.submit(Manifest(FAN_IN, RUN, 0, objects), range(8))
    folder.wait(20)
    assert folder.finished() == [] and objects[3].name in str(folder.failure)
    assert objects[3].name in caplog.text
    store.put(objects[3].name, [good])
    for _ in range(3):
        folder.submit(Manifest(FAN_IN, RUN, 0, objects), range(8))
        folder.wait(20)
    assert len(folder.finished()) == 1
    folder.close()


def test_objects_that_are_not_durable_are_not_compacted() -> None:
    folder = Compactor(memory(), compact_newest, run=RUN, server=0)
    with pytest.raises(ValueError, match="beyond epoch 3"):
        folder.submit(Manifest(3, RUN, 0, (ref(4, 10),)), range(8))
    assert section({}).num_rows == 0


def test_a_compaction_is_complete_where_no_older_object_is_left() -> None:
    store = memory()
    objects = tuple(write_delta(store, epoch, {(0, ("k", 0)): epoch}) for epoch in range(4))
    for chosen, complete in ((objects, True), (objects[1:], False)):
        sizes_seen: list[bool] = []

        def compact(operator, batches, horizon, all_of_them, sizes_seen=sizes_seen):
            sizes_seen.append(all_of_them)
            return compact_newest(operator, batches, horizon)

        folder = Compactor(store, compact, run=RUN, server=0, choose=lambda refs, shards, chosen=chosen: chosen)
        folder.submit(Manifest(3, RUN, 0, objects), range(8))
        folder.wait(20)
        assert folder.failure is None
        assert set(sizes_seen) == {complete}
