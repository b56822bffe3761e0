"""Another number of shards for a state that no query uses: offline, streamed, in its own location.

A key's shard is its hash modulo the number of shards. With *g*, the greatest common divisor of the old number and the
new one, the old shards that leave the same rest by *g* hold the keys of the new shards that leave this rest, and no
others. So the work falls into parts; each reads its old shards, some keys at a time, and writes one object with all
that they amount to. The log gets one more entry: the manifest of the newest epoch, with these objects and the digest of
the new plan. That put decides. Before it the plan file holds both plans, so whichever entry is the newest, its plan is
there.

Objects have names that follow from what they are made of. So who was interrupted and begins again goes on with what is
there, unless the query was started meanwhile: its start deletes them.

An epoch that Spark has to run again stays one: the entry says so as it does when a query goes back (``recovery``).

Functions hold no state. One thread.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import pairwise
from math import gcd
from typing import Any

import numpy as np
import pyarrow as pa
from zlib_ng.zlib_ng import crc32

from tailrace.commit import shard_ranges as ranges
from tailrace.commit.compaction.compaction import CompactSections
from tailrace.commit.lock import QueryLock
from tailrace.commit.log import CommitLog
from tailrace.commit.manifest import NO_ENTRY, Manifest
from tailrace.commit.max_pane import max_pane_from_json
from tailrace.commit.objects import ObjectRef, horizon_of, open_objects, sections_by_shard, write_sections
from tailrace.commit.plan_file import plan_digest, write_plan
from tailrace.commit.recovery.go_back import gone_back
from tailrace.commit.recovery.recovery_point import SparkLogs
from tailrace.commit.recovery.start import StartRequest, decide_start
from tailrace.commit.savepoints.savepoint import commit_of
from tailrace.commit.spark_logs.records import RecordedFile, SparkRecord, put_record
from tailrace.env.files.scratch import SpilledBatches
from tailrace.env.randomness import new_run_id
from tailrace.env.stores.location import probe_put_if_absent
from tailrace.env.stores.object_store import ObjectStore
from tailrace.errors import CheckpointError, CorruptionError
from tailrace.log import filenames
from tailrace.log.reader import ObjectReader
from tailrace.log.writer import Section

PART_BYTES = 64 << 20
"""About so much of the state at least is one object."""
PARTS_MAX = 16
"""More are written only where each would be for too many shards."""
PART_SHARDS_MAX = 256
"""An object is for so many shards at most: each has a file while it is made."""

Opened = Sequence[tuple[ObjectRef, ObjectReader]]


@dataclass(frozen=True)
class Part:
    """``read``: old shards. ``write``: new ones, all of whose keys are in those."""

    read: tuple[int, ...]
    write: tuple[int, ...]


@dataclass(frozen=True)
class Change:
    """``plan``: as it was; ``resharded``: as it will be. ``compact``: see ``commit.compaction``. ``done``: is told."""

    old: int
    new: int
    plan: Mapping[str, Any]
    resharded: Mapping[str, Any]
    compact: CompactSections
    done: Callable[[ObjectRef], object] = lambda _: None


def reshard(store: ObjectStore, spark_logs: SparkLogs, change: Change) -> Manifest:
    """Divide the state anew. Gives what a query that is started with so many shards goes on from."""
    run = new_run_id()
    lock = QueryLock(store, run)
    try:
        probe_put_if_absent(store)
        log = CommitLog(store)
        request = StartRequest(change.plan, _same_plan, reread=True, check=lambda _: None)
        if log.read().newest is None:
            raise CheckpointError(f"No epoch is durable at {store.uri}: start the query with the shards that you want.")
        decide_start(log, store, spark_logs, request)
        fence = log.fence(run)
        history = log.read().without(fence)
        start = decide_start(log, store, spark_logs, request, fence)
        manifest, newest = start.point.manifest, start.history.newest
        assert newest is not None
        if manifest.number != newest.number:
            if (again := gone_back(log, store, history, manifest.epoch, run)) is None:
                raise AssertionError(f"epoch {manifest.epoch} is the newest one")
            manifest = again
        written = _objects(store, start.point.manifest, change)
        write_plan(store, change.plan, replace=True, then=change.resharded)
        entry = replace(
            manifest,
            run=run,
            objects=tuple(sorted(written, key=lambda ref: (ref.first_epoch, ref.shards, ref.name))),
            spark_logs=_with_commit(store, spark_logs, manifest, fence),
            plan=plan_digest(change.resharded),
            number=NO_ENTRY,
            parent=NO_ENTRY,
            floor=newest.floor,
            kept_from=manifest.epoch,
        )
        appended = log.append_durable(run, entry)
        write_plan(store, change.resharded, replace=True)
        return appended
    finally:
        lock.release()


def parts(old: int, new: int, bytes_: int) -> list[Part]:
    """
    >>> parts(2, 4, 0)
    [Part(read=(0, 1), write=(0, 1, 2, 3))]
    """
    common = gcd(old, new)
    each = new // common
    if each > PART_SHARDS_MAX:
        rests = _cut(range(common), 1)
    else:
        wanted = max(-(-new // PART_SHARDS_MAX), min(PARTS_MAX, bytes_ // PART_BYTES))
        rests = _cut(range(common), -(-common // wanted))
    found = []
    for chosen in rests:
        read = tuple(shard for shard in range(old) if shard % common in chosen)
        write = [shard for shard in range(new) if shard % common in chosen]
        found += [Part(read, some) for some in _cut(write, PART_SHARDS_MAX)]
    return found


def _cut(numbers: Sequence[int], size: int) -> list[tuple[int, ...]]:
    return [tuple(numbers[start : start + size]) for start in range(0, len(numbers), size)]


def _objects(store: ObjectStore, manifest: Manifest, change: Change) -> list[ObjectRef]:
    refs = sorted(manifest.living, key=lambda ref: (ref.first_epoch, ref.last_epoch))
    if not refs:
        return []
    there = {each.name: each.bytes for each in store.list(filenames.OBJECT_PREFIX)}
    source = [manifest.number, manifest.run, [ref.to_json() for ref in refs], change.old, change.new]
    digest = hashlib.sha256(json.dumps(source, sort_keys=True).encode()).hexdigest()
    first, last = min(ref.first_epoch for ref in refs), max(ref.last_epoch for ref in refs)
    found = []
    for number, part in enumerate(parts(change.old, change.new, sum(ref.bytes for ref in refs))):
        name = filenames.compaction_name(first, last, digest[:16], "reshard", f"{number:08x}")
        if name not in there or (ref := _whole(store, name, there[name], first, last)) is None:
            opened = open_objects(store, refs)
            readers = [reader for _, reader in opened]
            known = sorted({operator for reader in readers for operator in reader.about["horizons"]})
            ref = write_sections(
                store,
                name,
                first_epoch=first,
                last_epoch=last,
                shards=ranges.of_shards(part.write),
                sections=_sections(opened, part, manifest, change),
                horizons={operator: horizon_of(operator, readers, manifest.horizons) for operator in known},
            )
        found.append(ref)
        change.done(ref)
    return found


def _whole(store: ObjectStore, name: str, size: int, first: int, last: int) -> ObjectRef | None:
    """What an earlier try has written; ``None`` where it is damaged."""
    try:
        reader = ObjectReader(store, name, size)
        reader.verify()
    except CorruptionError:
        return None
    shards = ranges.normal(reader.about["shards"])
    return ObjectRef(name, first, last, shards, size, max_pane_from_json(reader.about["max_pane"]))


def _sections(opened: Opened, part: Part, manifest: Manifest, change: Change) -> Iterator[Section]:
    for operator in sorted({operator for _, reader in opened for operator in reader.operators}):
        with ExitStack() as files:
            rows: dict[int, tuple[SpilledBatches, list[int]]] = {}
            read = sections_by_shard(opened, operator, part.read, manifest.horizons, pieces=True)
            for _, batches, horizon in read:
                if not batches:
                    continue
                section = change.compact(operator, batches, horizon, True)
                for shard, own in _divided(section, change.new):
                    if shard not in part.write:
                        continue
                    if shard not in rows:
                        rows[shard] = (files.enter_context(closing(SpilledBatches(None, own.schema))), [0])
                    rows[shard][0].write(own)
                    rows[shard][1][0] += 1
            for shard in sorted(rows):
                spilled, (count,) = rows[shard]
                for number in range(count):
                    yield operator, shard, spilled.batch(number)


def _divided(section: pa.RecordBatch, shards: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Its rows by shard, in their order."""
    owners = section.column("__hash").to_numpy() % shards
    order = np.argsort(owners, kind="stable")
    found, starts = np.unique(owners[order], return_index=True)
    ordered = section.take(pa.array(order))
    edges = [*starts.tolist(), len(order)]
    for shard, (start, end) in zip(found.tolist(), pairwise(edges), strict=True):
        yield shard, ordered.slice(start, end - start)


def _with_commit(
    store: ObjectStore, spark_logs: SparkLogs, manifest: Manifest, fence: int
) -> Mapping[str, RecordedFile]:
    """Spark's files, and its commit of the epoch: the manifest before, which is opened where that is lost, has no
    entry with the new shards.
    """
    path, place = f"commits/{manifest.epoch}", spark_logs.files
    if place is None or not manifest.spark_logs or path in manifest.spark_logs:
        return manifest.spark_logs
    if (data := commit_of(store, place, manifest)) is None:
        return manifest.spark_logs
    name = filenames.spark_record_name(manifest.epoch, fence)
    listing = {**manifest.spark_logs, path: RecordedFile(name, crc32(data))}
    put_record(store, SparkRecord(manifest.epoch, name, listing, {path: data}))
    return listing


def _same_plan(stored: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    if plan_digest(stored) != plan_digest(now):
        raise CheckpointError("The state was changed meanwhile. Begin again.")
