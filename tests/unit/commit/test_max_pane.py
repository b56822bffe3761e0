"""Objects whose windows have all closed: which they are, and that nothing changes when they leave.

The oracle is a model of a few lines: records in dictionaries, sections that are applied one after the other.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.models.commit import compact_newest, section, state_of
from tailrace.commit import shard_ranges as ranges
from tailrace.commit.compaction.compaction import FAN_IN, Compactor, compact_objects
from tailrace.commit.manifest import Compaction, Manifest, StaleCompaction, apply_compaction, living, next_objects
from tailrace.commit.max_pane import MaxPane, MaxPaneTracker, grown, is_dead, is_over
from tailrace.commit.objects import ObjectRef, open_object, write_object
from tailrace.env.randomness import short_id
from tailrace.env.stores.cloud_store import CloudStore
from tailrace.errors import CorruptionError
from tailrace.log import format as fmt

RUN = "0123456789abcdef"
SHARDS = 4
EPOCHS = 30


@pytest.mark.parametrize(
    ("max_pane", "horizons", "dead"),
    [
        ((("op", 4),), {"op": 5}, True),
        ((("op", 5),), {"op": 5}, False),  # the pane of the horizon itself is the first that stays
        ((("op", 4),), {}, False),
        ((("op", None),), {"op": 5}, False),
        ((("op", 4), ("other", 9)), {"op": 5, "other": 9}, False),
        ((("op", 4), ("other", 9)), {"op": 5, "other": 10}, True),
        ((), {}, True),
    ],
)
def test_dead_is_what_no_horizon_leaves_anything_of(max_pane: MaxPane, horizons: dict[str, int], dead: bool) -> None:
    assert is_dead(max_pane, horizons) is dead
    ref = ObjectRef("objects/a", 0, 0, ((0, 4),), 1, max_pane)
    assert living([ref], horizons) == (() if dead else (ref,))
    assert ObjectRef.from_json(ref.to_json()) == ref
    assert not is_over(max_pane, "nobody", 2**62)


def test_horizons_only_grow() -> None:
    assert grown({"a": 3, "b": 3}, {"a": 2, "b": 4, "c": -1}) == {"a": 3, "b": 4, "c": -1}


def test_max_pane_is_the_largest_pane_where_all_records_have_one() -> None:
    reaching = MaxPaneTracker()
    reaching.see("op", section({("k", 3): 1, ("l", -7): 1}))
    reaching.see("op", section({("k", -5): 1}))
    reaching.see("empty", section({}))
    reaching.see("flat", section({("k", 3): 1}))
    reaching.see("flat", pa.record_batch({"k0": ["k"]}))
    reaching.see("null", pa.record_batch({"__pane": pa.array([3, None], pa.int64())}))
    reaching.see("text", pa.record_batch({"__pane": ["3"]}))
    assert reaching.max_pane() == (("flat", None), ("null", None), ("op", 3), ("text", None))


# A whole life of manifests, in a model --------------------------------------------------------------------------------

Section = dict[tuple[str, int], int | None]
"""Values by key and pane; None is a tombstone."""


@dataclass
class Life:
    """Manifests, and their objects as dictionaries. Compactions come late, again, and from servers of other shards."""

    rng: random.Random
    files: dict[str, dict[tuple[str, int], Section]] = field(default_factory=dict)
    chain: list[Manifest] = field(default_factory=lambda: [Manifest(-1, RUN, 0)])
    truth: list[dict[tuple[str, int], Section]] = field(default_factory=lambda: [{}])
    offered: list[Compaction] = field(default_factory=list)
    listed: set[str] = field(default_factory=set)
    left: int = 0
    numbers: Iterator[int] = field(default_factory=count)

    def run(self) -> None:
        owned = self._owned()
        while self.chain[-1].epoch < EPOCHS - 1:
            if self.rng.random() < 0.2:
                owned = self._owned()
            self._epoch(owned)
            if len(self.chain) > 2 and self.rng.random() < 0.1:  # a start that recovers from the parent
                del self.chain[-1], self.truth[-1]
                self.offered = []
                self._check()

    def _owned(self) -> list[ranges.Ranges]:
        cut = self.rng.randrange(SHARDS)
        return [((start, end),) for start, end in ((0, cut), (cut, SHARDS)) if start < end]

    def _epoch(self, owned: list[ranges.Ranges]) -> None:
        before, rng = self.chain[-1], self.rng
        epoch = before.epoch + 1
        horizons = grown(before.horizons, {"win": max(0, epoch - rng.randrange(1, 6)), "flat": -(2**63)})
        truth = {at: dict(records) for at, records in self.truth[-1].items()}
        deltas = []
        for shards in owned:
            content = {}
            for at in [("win", shard) for shard in ranges.members(shards) if rng.random() < 0.6]:
                content[at] = self._changes([*truth.get(at, {}), *((k, epoch + rng.randrange(-2, 2)) for k in "ab")])
            if rng.random() < 0.1:
                content["flat", shards[0][0]] = self._changes([("a", 0)])
            for at, changes in content.items():
                truth.setdefault(at, {}).update(changes)
            deltas.append(self._put(f"{next(self.numbers)}", epoch, epoch, shards, content))
        for shards in owned:
            if rng.random() < 0.5 and (made := self._compact(before, shards)):
                self.offered.append(made)
        compactions = [compact for compact in self.offered if rng.random() < 0.5]
        objects, _ = next_objects(before, epoch, deltas, compactions, horizons)
        self.left += len({ref.name for ref in before.objects} - {ref.name for ref in objects})
        self.chain.append(Manifest(epoch, RUN, 0, objects, horizons=horizons))
        self.truth.append(truth)
        self._check()
        self._clean()

    def _changes(self, candidates: list[tuple[str, int]]) -> Section:
        chosen = self.rng.sample(candidates, self.rng.randint(1, min(3, len(candidates))))
        return {identity: self.rng.choice([None, *range(9)]) for identity in chosen}

    def _put(
        self, name: str, first: int, last: int, shards: ranges.Ranges, content: dict[tuple[str, int], Section]
    ) -> ObjectRef:
        self.files[name] = content
        panes: dict[str, Any] = {}
        for (operator, _), records in content.items():
            for _, pane in records:
                panes[operator] = max(pane, panes.get(operator, pane)) if operator == "win" else None
        return ObjectRef(name, first, last, shards, 1, tuple(sorted(panes.items())))

    def _compact(self, manifest: Manifest, shards: ranges.Ranges) -> Compaction | None:
        """Neighbours that live, as a server of these shards would merge them."""
        mine = [ref for ref in living(manifest.objects, manifest.horizons) if ranges.common(ref.shards, shards)]
        if not mine:
            return None
        chosen = [self.rng.choice(mine)]
        while True:
            first, last = min(ref.first_epoch for ref in chosen), max(ref.last_epoch for ref in chosen)
            last += self.rng.randrange(3)
            more = [ref for ref in mine if ref.first_epoch <= last and ref.last_epoch >= first]
            if more == chosen:
                break
            chosen = more
        covered = ranges.normal(part for ref in chosen for part in ranges.common(ref.shards, shards))
        complete = chosen == mine
        content = {}
        for operator in ("win", "flat"):
            for shard in ranges.members(covered):
                records = self._merged(chosen, operator, shard, manifest.horizons[operator])
                kept = {at: value for at, value in records.items() if value is not None or not complete}
                if kept:
                    content[operator, shard] = kept
        last = max(ref.last_epoch for ref in chosen)
        return Compaction(tuple(chosen), self._put(f"fold {next(self.numbers)}", first, last, covered, content))

    def _merged(self, refs: list[ObjectRef], operator: str, shard: int, horizon: int) -> Section:
        records: Section = {}
        for ref in sorted(refs, key=lambda each: each.first_epoch):
            if ranges.contains(ref.shards, shard):
                records |= self.files[ref.name].get((operator, shard), {})
        return {at: value for at, value in records.items() if at[1] >= horizon}

    def _check(self) -> None:
        manifest, truth = self.chain[-1], self.truth[-1]
        for operator in ("win", "flat"):
            horizon = manifest.horizons[operator]
            for shard in range(SHARDS):
                found = self._merged(list(manifest.objects), operator, shard, horizon)
                wanted = truth.get((operator, shard), {})
                assert {at: value for at, value in found.items() if value is not None} == {
                    at: value for at, value in wanted.items() if value is not None and at[1] >= horizon
                }

    def _clean(self) -> None:
        self.listed |= {ref.name for ref in self.chain[-1].objects}
        kept = {ref.name for manifest in self.chain[-2:] for ref in manifest.objects}
        for name in self.listed - kept:
            self.files.pop(name, None)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_a_manifest_means_the_same_without_its_dead(seed: int) -> None:
    life = Life(random.Random(seed))
    life.run()
    assert life.left > EPOCHS / 2


# Objects in a store ---------------------------------------------------------------------------------------------------


class Counting(CloudStore):
    """Counts the bytes that are read of each object."""

    def __init__(self) -> None:
        super().__init__(f"memory://{short_id()}", {})
        self.read: dict[str, int] = {}

    def get_range(self, name: str, start: int, length: int) -> bytes:
        self.read[name] = self.read.get(name, 0) + length
        return super().get_range(name, start, length)


def write(store: CloudStore, epoch: int, horizon: int = 0, rows: int = 1, **others: pa.RecordBatch) -> ObjectRef:
    """Every shard has rows of its epoch's pane."""
    sections = {shard: section({(f"k{each}", epoch): epoch for each in range(rows)}) for shard in range(SHARDS)}
    return write_object(
        store,
        run=RUN,
        try_=0,
        server=0,
        first_epoch=epoch,
        last_epoch=epoch,
        shards=[(0, SHARDS)],
        sections={"op": sections, **{name: {0: batch} for name, batch in others.items()}},
        horizons={"op": horizon},
    )


def test_manifest_and_object_agree_about_the_max_pane() -> None:
    store = Counting()
    ref = write(store, 3, flat=pa.record_batch({"k0": ["k"]}))
    assert ref.max_pane == (("flat", None), ("op", 3))
    assert open_object(store, ref).about["max_pane"] == {"flat": None, "op": 3}
    other = ObjectRef(ref.name, 3, 3, ref.shards, ref.bytes, (("op", 2),))
    with pytest.raises(CorruptionError, match=r"largest panes .*'op': 3.*, not {'op': 2}"):
        open_object(store, other)


def test_only_operators_that_are_not_over_are_read_of_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction of objects in which a rolling aggregate lives, beside large windows that have closed."""
    monkeypatch.setattr("tailrace.log.reader.WHOLE_BYTES_MAX", 3_000)
    monkeypatch.setattr("tailrace.commit.objects.READ_AHEAD_BYTES", 0)
    store = Counting()
    rolling = [section({("r", 0): epoch}) for epoch in range(4)]
    refs = [write(store, epoch, rows=500, rolling=rolling[epoch]) for epoch in range(4)]
    before = Manifest(3, RUN, 0, tuple(refs), horizons={"op": 3, "rolling": -(2**63)})
    state = state_of(store, before, SHARDS, 1), state_of(store, before, SHARDS, 1, "rolling")
    assert state[1] == {(0, ("r", 0)): 3}
    store.read.clear()
    compact = compact_objects(store, refs, range(SHARDS), compact_newest, run=RUN, server=0, horizons=before.horizons)
    assert all(store.read[ref.name] < ref.bytes / 2 for ref in refs[:3]) and store.read[refs[3].name] >= refs[3].bytes
    after = Manifest(3, RUN, 0, apply_compaction(refs, compact, before.horizons), horizons=before.horizons)
    assert len(after.objects) == 1
    assert (state_of(store, after, SHARDS, 1), state_of(store, after, SHARDS, 1, "rolling")) == state


def test_a_compaction_outlives_some_of_what_it_was_made_of() -> None:
    """One that begins before the windows of epochs 0 and 1 close, and is done when their files have gone."""
    store = Counting()
    refs = tuple(write(store, epoch) for epoch in range(4))
    compact = compact_objects(store, refs, range(SHARDS), compact_newest, run=RUN, server=0, horizons={"op": 0})
    horizons = {"op": 2}
    objects = living(refs, horizons)
    assert objects == refs[2:]
    with pytest.raises(StaleCompaction, match="is not listed"):
        apply_compaction(objects, compact)  # by these horizons it is not dead: somebody else has compacted it
    assert apply_compaction(objects, compact, horizons) == (compact.ref,)
    after = Manifest(4, RUN, 0, (compact.ref,), horizons=horizons)
    assert state_of(store, after, SHARDS, 1) == state_of(store, Manifest(4, RUN, 0, refs, horizons=horizons), SHARDS, 1)
    with pytest.raises(StaleCompaction, match="nothing is left"):
        apply_compaction((), compact, {"op": 4})


def test_a_compaction_that_is_dead_when_it_comes_is_listed_once_so_that_its_file_goes() -> None:
    """It also stands for an object whose records have no panes, which never is dead."""
    store = Counting()
    windows, flat = write(store, 0), ObjectRef("objects/flat", 1, 1, ((0, SHARDS),), 1, (("op", None),))
    compact = Compaction((windows, flat), ObjectRef("objects/fold", 0, 1, ((0, SHARDS),), 1, ()))
    before = Manifest(1, RUN, 0, (windows, flat), horizons={"op": 1})
    objects, applied = next_objects(before, 2, [], [compact], {"op": 1})
    assert (objects, applied) == ((compact.ref,), (compact,))
    after = Manifest(2, RUN, 0, objects, horizons={"op": 1})
    assert next_objects(after, 3, [], [compact], {"op": 1}) == ((), ())


def test_a_compaction_reads_nothing_more_of_an_object_that_dies_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file goes during the compaction. That is neither damage nor a reason to wait before the next one."""
    monkeypatch.setattr("tailrace.log.reader.WHOLE_BYTES_MAX", 2_000)
    monkeypatch.setattr("tailrace.commit.objects.READ_AHEAD_BYTES", 0)
    monkeypatch.setattr(fmt, "PACK_BYTES", 0)  # each shard's section is read by itself
    store = Counting()
    refs = tuple(write(store, epoch, rows=100) for epoch in range(FAN_IN))
    begun: list[int] = []

    def compact_first(operator: str, batches: list[pa.RecordBatch], horizon: int, complete: bool) -> pa.RecordBatch:
        if not begun:
            folder.submit(Manifest(FAN_IN, RUN, 0, refs[4:], horizons={"op": 4}), range(SHARDS))
            store.delete([ref.name for ref in refs[:4]])
        begun.append(len(batches))
        return compact_newest(operator, batches, horizon)

    folder = Compactor(store, compact_first, run=RUN, server=0)
    folder.submit(Manifest(FAN_IN - 1, RUN, 0, refs, horizons={"op": 0}), range(SHARDS))
    folder.wait(20)
    assert begun == [FAN_IN, *[FAN_IN - 4] * (SHARDS - 1)]
    assert folder.failure is None
    (compact,) = folder.finished()
    objects, applied = next_objects(
        Manifest(FAN_IN, RUN, 0, refs[4:], horizons={"op": 4}), FAN_IN + 1, [], folder.finished(), {"op": 4}
    )
    assert applied == (compact,)
    after = Manifest(FAN_IN + 1, RUN, 0, objects, horizons={"op": 4})
    wanted = Manifest(FAN_IN + 1, RUN, 0, refs[4:], horizons={"op": 4})
    assert state_of(store, after, SHARDS, 2) == state_of(store, wanted, SHARDS, 1)
    folder.close()


def test_dead_objects_are_not_compacted() -> None:
    store = Counting()
    refs = tuple(write(store, epoch) for epoch in range(FAN_IN))
    folder = Compactor(store, compact_newest, run=RUN, server=0)
    folder.submit(Manifest(FAN_IN, RUN, 0, refs, horizons={"op": 1}), range(SHARDS))  # one too few are left
    folder.wait(20)
    assert not store.read and not folder.finished()
    folder.submit(Manifest(FAN_IN, RUN, 0, refs, horizons={"op": 0}), range(SHARDS))
    folder.wait(20)
    assert folder.finished()
    folder.close()


def test_a_file_that_goes_while_it_is_read_is_no_damage() -> None:
    class Going(Counting):
        def get_range(self, name: str, start: int, length: int) -> bytes:
            if name == refs[2].name:
                submitted.wait(20)  # else this thread could be at work before the compactor knows of it
                folder.submit(Manifest(FAN_IN + 9, RUN, 0, refs[3:], horizons={"op": 3}), range(SHARDS))
                self.delete([name])
            return super().get_range(name, start, length)

    store = Going()
    submitted = threading.Event()
    refs = tuple(write(store, epoch) for epoch in range(FAN_IN + 8))
    folder = Compactor(store, compact_newest, run=RUN, server=0)
    folder.submit(Manifest(FAN_IN + 8, RUN, 0, refs, horizons={"op": 0}), range(SHARDS))
    submitted.set()
    folder.wait(20)
    assert folder.failure is None and not folder.finished()
    # At once, and not after a pause.
    folder.submit(Manifest(FAN_IN + 10, RUN, 0, refs[3:], horizons={"op": 3}), range(SHARDS))
    folder.wait(20)
    (compact,) = folder.finished()
    assert compact.replaces == refs[3:]
    folder.close()
