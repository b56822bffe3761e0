"""Checkpoint compaction: adjacent objects become one, in the background, never touching live state.

Which objects, decides ``choose`` alone, a pure function with three rules:

- *Tiers*: the newest sixteen objects or more become one, as soon as the largest of them is at most a quarter of all. So
  each rewriting of a record puts it into an object at least four times as large: it is rewritten logarithmically often.
- *Snapshot*: once all that follows the oldest object is twice as large as the oldest itself, everything becomes one. So
  a restart reads at most about three times the state, and the price is half a write more per byte written.
- *Many*: once there are 128 objects, whatever their sizes, everything becomes one. A shard snapshot overlaps older
  objects, so that all count as one: with a snapshot now and then, the other two rules may never have their sixteen.

A compaction is made file to file, one shard of one operator at a time, of a large one some keys at a time
(``shard_pieces``). It reads only objects of durable epochs, and counts only when a durable manifest lists it: one that
is lost, or comes too late, costs nothing but its work. An object that is dead (see ``max_pane``) is never chosen. One
that dies while it is being merged is not read any further: its file may go at any time, and the compaction enters a
manifest by whose horizons its records mean nothing.

Where epochs change much of the state, shard snapshots take the place of all this: see ``shard_snapshot``.

``Compactor`` owns one thread. Its methods are called from one other thread (the server's commit).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial

import pyarrow as pa

from tailrace.commit import shard_ranges as ranges
from tailrace.commit.compaction.shard_snapshot import ShardSnapshot
from tailrace.commit.manifest import EMPTY, Compaction, Manifest, compaction_problem
from tailrace.commit.max_pane import is_dead
from tailrace.commit.objects import (
    ObjectRef,
    horizon_of,
    in_order,
    open_objects,
    sections_by_shard,
    write_sections,
)
from tailrace.env import clock, tasks
from tailrace.env.randomness import short_id
from tailrace.env.stores.object_store import ObjectStore
from tailrace.log import filenames
from tailrace.log.writer import Section

CompactSections = Callable[[str, list[pa.RecordBatch], int, bool], pa.RecordBatch]
"""Operator's name, sections of one shard oldest first, horizon, complete -> one section of the same meaning.

Complete: there are no older sections, so that what only says what is gone can be left out.
"""

FAN_IN = 16
"""So many objects at least become one."""

GROWTH = 4
"""So much larger at least than the largest of them must the result be."""

TAIL = 2
"""So many times the oldest object's size may follow it before everything becomes one."""

MANY = 128
"""So many objects of a server's shards become one, whatever their sizes."""

SMALL_BYTES = 64 << 10
"""Below this, size does not matter: what an object costs is its request."""

PAUSE_MAX = 64

logger = logging.getLogger("tailrace.commit")


@dataclass(frozen=True)
class _Span:
    """Objects whose epochs overlap (they are of different shards): merged together or not at all."""

    refs: tuple[ObjectRef, ...]
    bytes: float  # the part that belongs to the compacting server's shards, estimated


def choose(objects: Iterable[ObjectRef], shards: Iterable[int]) -> tuple[ObjectRef, ...]:
    """The objects that a server of these shards should merge now, oldest first; empty where there is no need."""
    spans = _spans(objects, ranges.of_shards(shards))
    if sum(len(span.refs) for span in spans) >= MANY:
        return _refs(spans)
    if len(spans) < FAN_IN:
        return ()
    if sum(span.bytes for span in spans[1:]) >= TAIL * spans[0].bytes:
        return _refs(spans)
    total = largest = 0.0
    for count, span in enumerate(reversed(spans), start=1):
        size = max(span.bytes, SMALL_BYTES)
        total, largest = total + size, max(largest, size)
        if count >= FAN_IN and total >= GROWTH * largest:  # the shortest that qualifies: the cheapest
            return _refs(spans[-count:])
    return ()


def compact_objects(
    store: ObjectStore,
    refs: Sequence[ObjectRef],
    shards: Iterable[int],
    compact_sections: CompactSections,
    *,
    run: str,
    server: str | int,
    horizons: Mapping[str, int] | None = None,
    complete: bool = False,
    stopping: Callable[[], bool] = lambda: False,
    gone: Callable[[ObjectRef], bool] = lambda _: False,
    folder: str | None = None,
) -> Compaction:
    """Write one object that stands for ``refs``, for those of ``shards`` that they hold. Durable on return.

    ``horizons``: those of a durable manifest that lists all of ``refs``: what they removed is left out. ``complete``:
    that manifest lists no older object of these shards. ``gone``: dead by the horizons of the newest durable manifest.
    ``folder``: for parts of large shards that wait for their turn.
    """
    ordered = sorted(refs, key=lambda ref: (ref.first_epoch, ref.last_epoch))
    wanted = ranges.of_shards(shards)
    covered = ranges.normal(part for ref in ordered for part in ranges.common(ref.shards, wanted))
    first, last = min(ref.first_epoch for ref in ordered), max(ref.last_epoch for ref in ordered)
    opened = open_objects(store, ordered)
    readers = [reader for _, reader in opened]
    operators = sorted({operator for reader in readers for operator in reader.operators})
    known = {operator for reader in readers for operator in reader.about["horizons"]}

    def sections() -> Iterator[Section]:
        for operator in operators:
            for shard, batches, horizon in sections_by_shard(
                opened, operator, ranges.members(covered), horizons, gone, pieces=True, folder=folder
            ):
                if not batches:
                    continue
                if stopping():
                    raise _Stopped
                yield operator, shard, compact_sections(operator, batches, horizon, complete)

    ref = write_sections(
        store,
        filenames.compaction_name(first, last, run, server, short_id()),
        first_epoch=first,
        last_epoch=last,
        shards=covered,
        sections=sections(),
        horizons={operator: horizon_of(operator, readers, horizons) for operator in sorted(known)},
    )
    return Compaction(tuple(ordered), ref)


def write_shard_snapshot(
    store: ObjectStore, snapshot: ShardSnapshot, replaced: Sequence[ObjectRef], epoch: int, run: str, server: str | int
) -> Compaction:
    """Write shards as they were after durable ``epoch``. ``replaced``: all that its manifest has of them."""
    first = min(ref.first_epoch for ref in replaced)
    ref = write_sections(
        store,
        filenames.compaction_name(first, epoch, run, server, short_id()),
        first_epoch=first,
        last_epoch=epoch,
        shards=ranges.of_shards(snapshot.shards),
        sections=in_order(snapshot.sections),
        horizons=snapshot.horizons,
    )
    return Compaction(tuple(replaced), ref)


@dataclass
class Compactor:
    """The server's background thread that compacts. At most one compaction is under way or waiting to be used.

    ``throttle``: returns when it is a good time for the next shard. ``folder``: see ``compact_objects``.
    """

    store: ObjectStore
    compact_sections: CompactSections
    _: KW_ONLY
    run: str
    server: str | int
    choose: Callable[[Iterable[ObjectRef], Iterable[int]], tuple[ObjectRef, ...]] = choose
    throttle: Callable[[], None] = lambda: None
    folder: str | None = None

    def __post_init__(self) -> None:
        self._thread: tasks.Started | None = None
        self._stopping = tasks.event()
        self._done: Compaction | None = None
        self._newest = EMPTY  # durable manifest; replaced whole, read by the thread
        self._pause = 0  # submits to let pass after a failure, so that a damaged file is not reread every epoch
        self._pause_next = 1
        self.failure: Exception | None = None
        self.took: tuple[float, float] | None = None  # the newest compaction: begin and end, by the wall clock

    def submit(self, manifest: Manifest, shards: Iterable[int], snapshot: ShardSnapshot | None = None) -> None:
        """What is durable now: starts a compaction for these shards where one is due. Returns at once.

        ``snapshot``: of that epoch. Where it is given, its shards are written from it, and no objects are merged.
        """
        if any(ref.last_epoch > manifest.epoch for ref in manifest.objects):
            raise ValueError(f"objects beyond epoch {manifest.epoch} were submitted to be compacted")
        self._newest = manifest
        objects, shards = manifest.living, tuple(shards)
        if self._busy():
            return
        if self._done is not None:
            if compaction_problem(objects, self._done, manifest.horizons) is None:
                return  # still waiting to be taken into a manifest
            self._done = None  # listed by now, or overtaken
        if self._pause > 0:
            self._pause -= 1
            return
        if snapshot is not None:
            snapshotted = ranges.of_shards(snapshot.shards)
            if replaced := tuple(ref for ref in objects if ranges.common(ref.shards, snapshotted)):
                ours = self.run, self.server
                self._start(partial(write_shard_snapshot, self.store, snapshot, replaced, manifest.epoch, *ours))
        elif chosen := self.choose(objects, shards):
            mine = [ref for ref in objects if ranges.common(ref.shards, ranges.of_shards(shards))]
            complete = {ref.name for ref in mine} <= {ref.name for ref in chosen}
            self._start(partial(self._compacted, chosen, shards, manifest.horizons, complete), chosen)

    def finished(self) -> list[Compaction]:
        """Compactions to be taken into the next manifest.

        Offered again until a submit shows that they are, or cannot be.
        """
        return [self._done] if self._done is not None and not self._busy() else []

    def wait(self, timeout_seconds: float | None = None) -> None:
        """Wait for the compaction under way."""
        if self._thread is not None:
            self._thread.join(timeout_seconds)

    def close(self) -> None:
        """Stop between two shards; an unfinished compaction leaves nothing behind. Idempotent."""
        self._stopping.set()
        self.wait()

    def _gone(self, ref: ObjectRef) -> bool:
        return is_dead(ref.max_pane, self._newest.horizons)

    def _busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _compacted(
        self, chosen: tuple[ObjectRef, ...], shards: tuple[int, ...], horizons: Mapping[str, int], complete: bool
    ) -> Compaction:
        return compact_objects(
            self.store,
            chosen,
            shards,
            self.compact_sections,
            run=self.run,
            server=self.server,
            horizons=horizons,
            complete=complete,
            stopping=lambda: self._stops(chosen),
            gone=self._gone,
            folder=self.folder,
        )

    def _stops(self, chosen: tuple[ObjectRef, ...]) -> bool:
        """Whether to go no further; else, when it is time for the next shard."""
        if not self._stopping.is_set():
            self.throttle()
        return self._stopping.is_set() or all(map(self._gone, chosen))

    def _start(self, make: Callable[[], Compaction], reads: tuple[ObjectRef, ...] = ()) -> None:
        self._thread = tasks.start("tailrace-compaction", self._work, make, reads)

    def _work(self, make: Callable[[], Compaction], reads: tuple[ObjectRef, ...]) -> None:
        began = clock.now()
        try:
            self._done = make()
            self._pause_next = 1
            self.took = began, clock.now()
        except _Stopped:
            pass
        except Exception as error:
            if any(map(self._gone, reads)):
                return  # a file that has gone meanwhile is no damage; the next compaction is made without it
            # Live state is untouched and the objects stay as they are: compaction is tried again, ever more rarely.
            self.failure = error
            self._pause, self._pause_next = self._pause_next, min(PAUSE_MAX, 2 * self._pause_next)
            logger.warning("A compaction failed, and will be tried again: %s", error)


class _Stopped(Exception):
    pass


def _spans(objects: Iterable[ObjectRef], shards: ranges.Ranges) -> list[_Span]:
    """The objects of these shards, oldest first, those with overlapping epochs joined."""
    spans: list[_Span] = []
    for ref in sorted(objects, key=lambda each: (each.first_epoch, each.last_epoch)):
        mine = ranges.size(ranges.common(ref.shards, shards))
        if not mine:
            continue
        weight = ref.bytes * mine / ranges.size(ref.shards)
        if spans and ref.first_epoch <= max(each.last_epoch for each in spans[-1].refs):
            spans[-1] = _Span((*spans[-1].refs, ref), spans[-1].bytes + weight)
        else:
            spans.append(_Span((ref,), weight))
    return spans


def _refs(spans: Sequence[_Span]) -> tuple[ObjectRef, ...]:
    return tuple(ref for span in spans for ref in span.refs)
