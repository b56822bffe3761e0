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
from tailrace.commit.shard_pieces import in_pieces
from tailrace.commit.shard_ranges import Ranges
from tailrace.env.stores.object_store import ObjectStore
from tailrace.errors import CorruptionError
from tailrace.log import filenames
from tailrace.log.format import damaged
from tailrace.log.reader import ObjectReader
from tailrace.log.typed_json import MalformedError, item
from tailrace.log.writer import Section, object_parts

NO_HORIZON = -(2**63)
"""Below every pane: nothing was removed yet."""

SHARDS_MAX = 1 << 16
"""More than any query has: so many are gone through one by one without anybody waiting."""

READ_AHEAD_BYTES = 1 << 20
"""How much of an object is fetched at once when many shards are read: object stores are slow to answer."""

_READ_AHEAD_TOTAL_BYTES = 32 << 20
"""Of all objects that are read together: a compaction may have a hundred of them."""

ShardSections = tuple[int, list[pa.RecordBatch], int]
"""A shard, its sections oldest first, and the horizon below which panes are gone.

Where a shard is large, it comes several times, each time with all sections of some of its keys (``shard_pieces``).
"""


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
        first_epoch, last_epoch = item(raw, "epochs", tuple[int, int])
        shards = item(raw, "shards", Ranges)
        if any(start < 0 or end > SHARDS_MAX for start, end in shards):
            raise MalformedError(f"shards go from 0 to {SHARDS_MAX}")
        return cls(
            name=item(raw, "name", str),
            first_epoch=first_epoch,
            last_epoch=last_epoch,
            shards=shards,
            bytes=item(raw, "bytes", int),
            max_pane=max_pane_from_json(raw.get("max_pane")),
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
    try:
        name, epochs = item(about, "name", str), item(about, "epochs", tuple[int, int])
        shards, max_pane = item(about, "shards", Ranges), max_pane_from_json(about.get("max_pane"))
        item(about, "horizons", dict[str, int])
    except MalformedError as error:
        raise CorruptionError(damaged(reader.where, f"its index is none of ours: {error}")) from None
    if name != ref.name or epochs != (ref.first_epoch, ref.last_epoch):
        raise CorruptionError(damaged(reader.where, f"it holds the object {name} of epochs {list(epochs)}"))
    if ranges.without(ref.shards, ranges.normal(shards)):
        raise CorruptionError(damaged(reader.where, f"it holds shards {shards}, not {ref.shards}"))
    if max_pane != ref.max_pane:
        found, meant = max_pane_to_json(max_pane), max_pane_to_json(ref.max_pane)
        raise CorruptionError(damaged(reader.where, f"its largest panes are {found}, not {meant}"))
    return reader


def read_sections(
    store: ObjectStore,
    refs: Iterable[ObjectRef],
    operator: str,
    shards: Iterable[int],
    horizons: Mapping[str, int] | None = None,
    *,
    pieces: bool = False,
    folder: str | None = None,
) -> Iterator[ShardSections]:
    """Each of ``shards`` in ascending order with its sections, none where it has no records.

    ``horizons``: those of the manifest, which may be ahead of every object's. Reads one shard at a time, with
    ``pieces`` a part of its keys at a time where it is large: memory is bounded by that, by the largest batch of a
    section, and by what is read ahead of the objects. ``folder``: for the pieces that wait.
    """
    wanted = sorted(set(shards))
    used = [ref for ref in refs if any(ranges.contains(ref.shards, shard) for shard in wanted)]
    used.sort(key=lambda ref: (ref.first_epoch, ref.last_epoch))
    opened = open_objects(store, used) if len(wanted) > 1 else [(ref, open_object(store, ref)) for ref in used]
    yield from sections_by_shard(opened, operator, wanted, horizons, pieces=pieces, folder=folder)


def open_objects(store: ObjectStore, refs: Sequence[ObjectRef]) -> list[tuple[ObjectRef, ObjectReader]]:
    """Objects of which many shards will be read in order."""
    ahead = min(READ_AHEAD_BYTES, _READ_AHEAD_TOTAL_BYTES // max(1, len(refs)))
    return [(ref, open_object(store, ref, ahead)) for ref in refs]


def sections_by_shard(
    opened: Sequence[tuple[ObjectRef, ObjectReader]],
    operator: str,
    shards: Iterable[int],
    horizons: Mapping[str, int] | None = None,
    gone: Callable[[ObjectRef], bool] = lambda _: False,
    *,
    pieces: bool = False,
    folder: str | None = None,
    beside: Sequence[tuple[ObjectRef, ObjectReader]] = (),
) -> Iterator[ShardSections]:
    """As ``read_sections``, over objects that are already open, oldest first. ``gone``: dead by now, so not read.

    ``beside``: objects of another epoch, read in turns with these: a shard of both is cut into the same pieces.
    """
    horizon = horizon_of(operator, [reader for _, reader in opened], horizons)
    over = [is_over(ref.max_pane, operator, horizon) for ref, _ in opened]
    for shard in shards:
        readers: list[tuple[ObjectRef, ObjectReader]] = []
        last = -1
        for (ref, reader), skipped in zip(opened, over, strict=True):
            if not ranges.contains(ref.shards, shard):
                continue
            if ref.first_epoch <= last:
                raise CorruptionError(
                    damaged(reader.where, f"for shard {shard} it overlaps an older object, which ends at epoch {last}")
                )
            last = ref.last_epoch
            if not skipped:
                readers.append((ref, reader))
        counted = [each for each in (*opened, *beside) if ranges.contains(each[0].shards, shard)] if beside else readers
        sizes = [reader.size_of(operator, shard) for _, reader in counted] if pieces else []
        rows, bytes_ = (sum(size[i] for size in sizes) for i in (0, 1))
        sections = _sections(readers, operator, shard, gone)
        for batches in in_pieces(sections, rows, bytes_, folder):
            yield shard, batches, horizon


def _sections(
    readers: Sequence[tuple[ObjectRef, ObjectReader]], operator: str, shard: int, gone: Callable[[ObjectRef], bool]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    for number, (ref, reader) in enumerate(readers):
        if not gone(ref):
            for batch in reader.section(operator, shard):
                yield number, batch


def horizon_of(operator: str, readers: Iterable[ObjectReader], horizons: Mapping[str, int] | None = None) -> int:
    """Horizons only grow: the largest that is known."""
    known: list[int] = [reader.about["horizons"].get(operator, NO_HORIZON) for reader in readers]
    return max([*known, (horizons or {}).get(operator, NO_HORIZON)])
