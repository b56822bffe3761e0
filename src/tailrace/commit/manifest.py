"""The manifest: what a durable epoch consists of. It is the body of a ``durable`` log entry.

Invariants, checked whenever a manifest is made from another:

- For every shard, the epochs of the objects valid for it are disjoint. An object with no shard left is not listed.
- A manifest of epoch *e* follows one of epoch *e - 1*; it adds objects of epoch *e* only, and compacts only objects
  that the manifest before it already had. So no compaction goes past a durable epoch.
- A compaction stands for *all* that its shards had between its first and last epoch: otherwise newest-wins would go
  wrong.
- What the manifest before had and what is dead by the new one's horizons (see ``max_pane``) is not listed any more. So
  an object that the new manifest adds is listed at least once, dead or not: only what was listed is ever cleaned.

Changes are data (``Compaction``, ``ObjectRef``) with preconditions, checked before they are applied. Everything is
frozen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tailrace.commit import shard_ranges as ranges
from tailrace.commit.max_pane import is_dead
from tailrace.commit.objects import ObjectRef
from tailrace.commit.spark_logs.records import RecordedFile, listing_of
from tailrace.ids import NO_EPOCH
from tailrace.log.typed_json import MalformedError, item

NO_ENTRY = -1
"""The log number of the empty manifest, which is not in the log."""

NO_HORIZONS: Mapping[str, int] = {}
"""Nothing is dead by them."""


@dataclass(frozen=True)
class Compaction:
    """A finished merge: ``ref`` stands for the objects in ``replaces``, for the shards of ``ref``.

    ``replaces``: as they were listed when the merge was begun.
    """

    replaces: tuple[ObjectRef, ...]
    ref: ObjectRef

    def to_json(self) -> dict[str, Any]:
        return {"replaces": [each.to_json() for each in self.replaces], "ref": self.ref.to_json()}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Compaction:
        return cls(tuple(map(ObjectRef.from_json, raw["replaces"])), ObjectRef.from_json(raw["ref"]))


@dataclass(frozen=True)
class Manifest:
    """What is said of a durable epoch: to the log, and to the servers that open its state or compact it."""

    epoch: int
    run: str
    try_: int
    objects: tuple[ObjectRef, ...] = ()
    watermarks: Mapping[str, Any] = field(default_factory=dict)
    rows: Mapping[str, Any] = field(default_factory=dict)  # of this epoch: input rows, late rows, ...
    epoch_config: Mapping[str, Any] = field(default_factory=dict)  # of this epoch: what a replay must repeat
    horizons: Mapping[str, int] = field(default_factory=dict)  # operator -> panes below are gone
    spark_logs: Mapping[str, RecordedFile] = field(default_factory=dict)  # by path: what Spark needs to replay it
    plan: str = ""  # digest of the plan that this state belongs to
    number: int = NO_ENTRY  # of the log entry that holds this manifest
    parent: int = NO_ENTRY  # number of the entry of the manifest this one was made from
    floor: int = 0  # no entry below this number is a durable one: where a later start may stop looking
    kept_from: int = 0  # this epoch and later ones are deleted by no run so far, also by one that was replaced
    replays: tuple[int, ...] = ()  # entries of the epochs that follow it, each to be run again as it was (``go_back``)
    replay_logs: Mapping[str, RecordedFile] = field(default_factory=dict)  # of one more such epoch, not durable then

    def to_json(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "run": self.run,
            "try": self.try_,
            "objects": [ref.to_json() for ref in self.objects],
            "watermarks": dict(self.watermarks),
            "rows": dict(self.rows),
            "epoch_config": dict(self.epoch_config),
            "horizons": dict(self.horizons),
            "spark_logs": {path: each.to_json() for path, each in self.spark_logs.items()},
            "plan": self.plan,
            "parent": self.parent,
            "floor": self.floor,
            "kept_from": self.kept_from,
            "replays": list(self.replays),
            "replay_logs": {path: each.to_json() for path, each in self.replay_logs.items()},
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any], number: int = NO_ENTRY) -> Manifest:
        """``number``: where it was read from the log; a server does without."""
        made = cls(
            epoch=item(raw, "epoch", int),
            run=item(raw, "run", str),
            try_=item(raw, "try", int),
            objects=tuple(ObjectRef.from_json(each) for each in item(raw, "objects", tuple[Any, ...])),
            watermarks=item(raw, "watermarks", dict[str, Any]),
            rows=item(raw, "rows", dict[str, Any]),
            epoch_config=item(raw, "epoch_config", dict[str, Any]),
            horizons=item(raw, "horizons", dict[str, int]),
            spark_logs=listing_of(item(raw, "spark_logs", dict[str, Any])),
            plan=item(raw, "plan", str),
            number=number,
            parent=item(raw, "parent", int),
            floor=item(raw, "floor", int),
            kept_from=item(raw, "kept_from", int),
            replays=item(raw, "replays", tuple[int, ...]),
            replay_logs=listing_of(item(raw, "replay_logs", dict[str, Any])),
        )
        if number != NO_ENTRY and made.parent >= number:
            raise MalformedError("its parent does not come before it")  # who follows parents would never end
        if number != NO_ENTRY and not all(0 <= each < number for each in made.replays):
            raise MalformedError("what is to be run again does not come before it")
        if made.spark_logs and f"offsets/{made.epoch}" not in made.spark_logs:
            raise MalformedError(f"of Spark's logs it has not what epoch {made.epoch} reads")
        return made

    @property
    def living(self) -> tuple[ObjectRef, ...]:
        """The objects of which its own horizons have left something."""
        return living(self.objects, self.horizons)

    @property
    def needs(self) -> set[str]:
        """Names of all that must be in the store for a start to continue from here."""
        records = {each.record for each in (*self.spark_logs.values(), *self.replay_logs.values())}
        return {ref.name for ref in self.objects} | records

    @property
    def replayed_until(self) -> int:
        """The newest epoch that must be run again as it was before; its own where there is none."""
        return self.epoch + len(self.replays) + bool(self.replay_logs)


EMPTY = Manifest(epoch=NO_EPOCH, run="", try_=0)
"""Before the first epoch: no objects, nothing seen."""


class StaleCompaction(ValueError):
    """A compaction that no longer fits: its objects were replaced meanwhile. Its maker drops it; nothing is lost."""


def living(objects: Iterable[ObjectRef], horizons: Mapping[str, int]) -> tuple[ObjectRef, ...]:
    """The objects without those that are dead by these horizons."""
    return tuple(ref for ref in objects if not is_dead(ref.max_pane, horizons))


def compaction_problem(
    objects: Iterable[ObjectRef], compact: Compaction, horizons: Mapping[str, int] = NO_HORIZONS
) -> str | None:
    """Why the compaction may not be applied to these objects, without those dead by these horizons, or ``None``.

    What it replaces may have died since it was begun. Anything else of it that is gone, wholly or for shards of the
    compaction, was compacted otherwise: what stands for it may have died too, so that only its absence shows that.
    """
    replaced, seen = {each.name: each for each in compact.replaces}, set()
    ref = compact.ref
    if not ref.shards:
        return f"{ref.name} stands for no shard"
    for each in objects:
        if each.name == ref.name:
            return f"{ref.name} is already listed"
        apart = each.last_epoch < ref.first_epoch or each.first_epoch > ref.last_epoch
        if each.name in replaced:
            seen.add(each.name)
            if each.first_epoch < ref.first_epoch or each.last_epoch > ref.last_epoch:
                return f"{each.name} reaches beyond the epochs of {ref.name}"
            if ranges.without(ranges.common(replaced[each.name].shards, ref.shards), each.shards):
                return f"{each.name} was compacted otherwise for some shards of {ref.name}"
        elif not apart and ranges.common(each.shards, ref.shards):
            return f"{each.name} overlaps {ref.name}, which was made without it"
    missing = [each for name, each in replaced.items() if name not in seen]
    if lost := sorted(each.name for each in missing if not is_dead(each.max_pane, horizons)):
        return f"{lost[0]} is not listed"
    return None if seen else f"nothing is left of what {ref.name} replaces"


def apply_compaction(
    objects: Iterable[ObjectRef], compact: Compaction, horizons: Mapping[str, int] = NO_HORIZONS
) -> tuple[ObjectRef, ...]:
    """The objects with the compaction's shards taken out of what it replaces.

    Objects with no shard left are dropped.
    """
    objects = tuple(objects)
    if problem := compaction_problem(objects, compact, horizons):
        raise StaleCompaction(problem)
    replaced = {each.name for each in compact.replaces}
    kept = [
        each.narrowed(ranges.without(each.shards, compact.ref.shards)) if each.name in replaced else each
        for each in objects
    ]
    return in_order([*(each for each in kept if each.shards), compact.ref])


def add_delta(objects: Iterable[ObjectRef], delta: ObjectRef, epoch: int) -> tuple[ObjectRef, ...]:
    objects = tuple(objects)
    if (delta.first_epoch, delta.last_epoch) != (epoch, epoch):
        raise ValueError(f"{delta.name} covers epochs {delta.first_epoch} to {delta.last_epoch}, not epoch {epoch}")
    for each in objects:
        if each.name == delta.name:
            raise ValueError(f"{delta.name} is already listed")
        if each.last_epoch >= epoch and ranges.common(each.shards, delta.shards):
            raise ValueError(f"{delta.name} and {each.name} both hold epoch {epoch} of the same shards")
    return in_order([*objects, delta])


def in_order(objects: Iterable[ObjectRef]) -> tuple[ObjectRef, ...]:
    """Oldest first, then by shard: the order in which manifests list and readers read."""
    return tuple(sorted(objects, key=lambda ref: (ref.first_epoch, ref.shards, ref.name)))


def next_objects(
    before: Manifest,
    epoch: int,
    deltas: Sequence[ObjectRef],
    compactions: Sequence[Compaction],
    horizons: Mapping[str, int] = NO_HORIZONS,
) -> tuple[tuple[ObjectRef, ...], tuple[Compaction, ...]]:
    """The objects of ``epoch`` and the compactions that could be applied; a stale one is left out.

    ``horizons``: those of ``epoch``. What they leave nothing of goes first, without being read: it must not stand in
    the way of a compaction that was made without it.
    """
    if epoch != before.epoch + 1:
        raise ValueError(f"epoch {epoch} cannot follow epoch {before.epoch}")
    objects, applied = living(before.objects, horizons), []
    for compact in compactions:
        if compact.ref.last_epoch > before.epoch:
            continue  # a shard snapshot of an epoch that is tried again: its epochs do not follow from what it replaces
        try:
            objects = apply_compaction(objects, compact, horizons)
        except StaleCompaction:
            continue
        applied.append(compact)
    for delta in deltas:
        objects = add_delta(objects, delta, epoch)
    return objects, tuple(applied)
