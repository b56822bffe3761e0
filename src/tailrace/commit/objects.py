"""State objects: what one server wrote for a span of epochs, and reading it back shard by shard.

An object covers epochs ``[first_epoch, last_epoch]`` and some shards. For each shard, the objects of a manifest are
disjoint in epochs; their sections, oldest first, newest value of a record winning, are that shard's state. A delta
covers one epoch, a compaction several; nothing reads them differently. An operator's sections in an object whose max
pane is below its horizon are not read (see ``max_pane``).

Functions here hold no state: safe from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tailrace.commit import shard_ranges as ranges
from tailrace.commit.max_pane import MaxPane, MaxPaneTracker, is_over, max_pane_from_json, max_pane_to_json
from tailrace.commit.shard_ranges import Ranges
from tailrace.env.stores.object_store import ObjectStore, locate
from tailrace.errors import CorruptionError
from tailrace.log import filenames
from tailrace.log.format import damaged
from tailrace.log.reader import ObjectReader
from tailrace.log.writer import Section, object_parts

NO_HORIZON = -(2**63)
"""Below every pane: nothing was removed yet."""

READ_AHEAD_BYTES = 1 << 20
"""How much of an object is fetched at once when many shards are read: object stores are slow to answer."""

ShardSections = tuple[int, list[pa.RecordBatch], int]
"""A shard, its sections oldest first, and the horizon below which panes are gone."""


@dataclass(frozen=True)
class ObjectRef:
    """An object, and the shards for which the manifest that holds this still uses it (others were compacted).

    ``max_pane``: of all the shards that it was written for.
    """

    name: str
    first_epoch: int
    last_epoch: int
    shards: Ranges
    bytes: int
    max_pane: MaxPane

    def narrowed(self, shards: Ranges) -> ObjectRef:
        return replace(self, shards=shards)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "epochs": [self.first_epoch, self.last_epoch],
            "shards": [list(each) for each in self.shards],
            "bytes": self.bytes,
            "max_pane": max_pane_to_json(self.max_pane),
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> ObjectRef:
        return cls(
            name=raw["name"],
            first_epoch=raw["epochs"][0],
            last_epoch=raw["epochs"][1],
            shards=tuple((start, end) for start, end in raw["shards"]),
            bytes=raw["bytes"],
            max_pane=max_pane_from_json(raw["max_pane"]),
        )


def write_object(
    store: ObjectStore,
    *,
    run: str,
    try_: int,
    server: str | int,
    first_epoch: int,
    last_epoch: int,
    shards: Iterable[Iterable[int]],
    sections: Mapping[str, Mapping[int, pa.RecordBatch]],
    horizons: Mapping[str, int],
) -> ObjectRef:
    """Write one server's delta: durable on return.

    ``shards``: half-open ranges that it answers for, with rows or not.
    """
    if first_epoch != last_epoch:
        raise ValueError(
            f"a delta covers one epoch, not {first_epoch} to {last_epoch}: compactions are written by commit.compaction"
        )
    name = filenames.delta_name(last_epoch, run, try_, server)
    return write_sections(
        store,
        name,
        first_epoch=first_epoch,
        last_epoch=last_epoch,
        shards=shards,
        sections=in_order(sections),
        horizons=horizons,
    )


def in_order(sections: Mapping[str, Mapping[int, pa.RecordBatch]]) -> Iterator[Section]:
    """By operator, then by shard: as they are written."""
    for operator, by_shard in sorted(sections.items()):
        for shard in sorted(by_shard):
            yield operator, shard, by_shard[shard]


def write_sections(
    store: ObjectStore,
    name: str,
    *,
    first_epoch: int,
    last_epoch: int,
    shards: Iterable[Iterable[int]],
    sections: Iterable[Section],
    horizons: Mapping[str, int],
) -> ObjectRef:
    """Write an object from a stream of sections, holding about one of them at a time."""
    covered = ranges.normal(shards)
    about: dict[str, Any] = {
        "name": name,
        "epochs": [first_epoch, last_epoch],
        "shards": [list(each) for each in covered],
        "horizons": dict(horizons),
    }
    reaching = MaxPaneTracker()

    def checked() -> Iterator[Section]:
        for operator, shard, batch in sections:
            if not ranges.contains(covered, shard):
                raise ValueError(f"{name} is for shards {covered} and got a section of shard {shard}")
            reaching.see(operator, batch)
            yield operator, shard, batch
        about["max_pane"] = max_pane_to_json(reaching.max_pane())

    size = store.put(name, object_parts(about, checked()))
    return ObjectRef(name, first_epoch, last_epoch, covered, size, reaching.max_pane())


def open_object(store: ObjectStore, ref: ObjectRef, read_ahead_bytes: int = 0) -> ObjectReader:
    """The object's verified index. Refuses an object that is whole but is not the one the manifest means."""
    reader = ObjectReader(store, ref.name, ref.bytes, read_ahead_bytes)
    about = reader.about
    if about["name"] != ref.name or about["epochs"] != [ref.first_epoch, ref.last_epoch]:
        raise CorruptionError(
            damaged(locate(store, ref.name), f"it holds the object {about['name']} of epochs {about['epochs']}")
        )
    if ranges.without(ref.shards, ranges.normal(about["shards"])):
        raise CorruptionError(damaged(locate(store, ref.name), f"it holds shards {about['shards']}, not {ref.shards}"))
    if max_pane_from_json(about["max_pane"]) != ref.max_pane:
        raise CorruptionError(
            damaged(
                locate(store, ref.name),
                f"its largest panes are {about['max_pane']}, not {max_pane_to_json(ref.max_pane)}",
            )
        )
    return reader


def read_sections(
    store: ObjectStore,
    refs: Iterable[ObjectRef],
    operator: str,
    shards: Iterable[int],
    horizons: Mapping[str, int] | None = None,
) -> Iterator[ShardSections]:
    """Each of ``shards`` in ascending order with its sections, none where it has no records.

    ``horizons``: those of the manifest, which may be ahead of every object's. Reads one shard at a time: memory is
    bounded by the largest shard, its largest section once more, and what is read ahead of each object.
    """
    wanted = sorted(set(shards))
    used = [ref for ref in refs if any(ranges.contains(ref.shards, shard) for shard in wanted)]
    used.sort(key=lambda ref: (ref.first_epoch, ref.last_epoch))
    ahead = READ_AHEAD_BYTES if len(wanted) > 1 else 0
    yield from sections_by_shard([(ref, open_object(store, ref, ahead)) for ref in used], operator, wanted, horizons)


def sections_by_shard(
    opened: Sequence[tuple[ObjectRef, ObjectReader]],
    operator: str,
    shards: Iterable[int],
    horizons: Mapping[str, int] | None = None,
    gone: Callable[[ObjectRef], bool] = lambda _: False,
) -> Iterator[ShardSections]:
    """As ``read_sections``, over objects that are already open, oldest first. ``gone``: dead by now, so not read."""
    horizon = horizon_of(operator, [reader for _, reader in opened], horizons)
    over = [is_over(ref.max_pane, operator, horizon) for ref, _ in opened]
    for shard in shards:
        batches: list[pa.RecordBatch] = []
        last = -1
        for (ref, reader), skipped in zip(opened, over, strict=True):
            if not ranges.contains(ref.shards, shard):
                continue
            if ref.first_epoch <= last:
                raise CorruptionError(
                    damaged(reader.where, f"for shard {shard} it overlaps an older object, which ends at epoch {last}")
                )
            last = ref.last_epoch
            if not skipped and not gone(ref):
                batches.extend(_joined(list(reader.section(operator, shard))))
        yield shard, batches, horizon


def _joined(parts: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """A section as one batch, as it was given to be written: what of it belongs together, only operators know."""
    return [pa.concat_batches(parts)] if len(parts) > 1 else parts


def horizon_of(operator: str, readers: Iterable[ObjectReader], horizons: Mapping[str, int] | None = None) -> int:
    """Horizons only grow: the largest that is known."""
    known: list[int] = [reader.about["horizons"].get(operator, NO_HORIZON) for reader in readers]
    return max([*known, (horizons or {}).get(operator, NO_HORIZON)])
