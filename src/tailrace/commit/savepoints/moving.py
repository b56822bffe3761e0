"""Savepoints in other places: copied, verified, and made the state of a new query.

A copy has the same objects under the same names, and the savepoint's own entry, which is put last: what is half copied
is no savepoint, and who copies again goes on where it was. A new query gets a state location of its own, with copies of
the objects, one fence and one durable entry: that put decides, and before it there is no state. The location says what
Spark's checkpoint must hold, so the query starts with an empty one. It has an id of its own: sinks see another query.

Every byte of a copy is read back and checked. Functions hold no state.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

from zlib_ng.zlib_ng import crc32

from tailrace.commit.lock import QueryLock
from tailrace.commit.log import CommitLog
from tailrace.commit.manifest import NO_ENTRY, Manifest
from tailrace.commit.objects import ObjectRef, open_object
from tailrace.commit.plan_file import plan_digest, write_plan
from tailrace.commit.savepoints.savepoint import Savepoint
from tailrace.commit.spark_logs.log_files import METADATA
from tailrace.commit.spark_logs.records import RecordedFile, SparkRecord, put_record
from tailrace.env.randomness import new_run_id, new_uuid
from tailrace.env.stores.location import probe_put_if_absent
from tailrace.env.stores.object_store import ObjectStore
from tailrace.errors import CheckpointError
from tailrace.log import filenames

_PART_BYTES = 8 << 20

Copied = Callable[[ObjectRef], object]
"""Is told of each object that is in its place, checked."""


def verify_savepoint(store: ObjectStore, savepoint: Savepoint) -> None:
    """Read and check every byte of it. ``CorruptionError`` names what is wrong."""
    for ref in savepoint.manifest.objects:
        open_object(store, ref).verify()


def copy_savepoint(
    source: ObjectStore, savepoint: Savepoint, target: ObjectStore, copied: Copied = lambda _: None
) -> None:
    """Copy it to another location, which may hold others. Copying again what is there is harmless."""
    if source.uri == target.uri:
        raise CheckpointError(f"The savepoint {savepoint.name!r} is at {target.uri} already.")
    for file in (each.name for each in target.list(filenames.SAVEPOINT_PREFIX)):
        if filenames.savepoint_of(file) == savepoint.name and file != savepoint.file:
            raise CheckpointError(f"There is another savepoint {savepoint.name!r} at {target.uri}.")
    _copy_objects(source, savepoint.manifest, target, copied)
    target.put(savepoint.file, [savepoint.encoded()])


def restore_savepoint(
    source: ObjectStore, savepoint: Savepoint, target: ObjectStore, copied: Copied = lambda _: None
) -> Manifest:
    """Make it the state of a new query at ``target``, which has none."""
    run = new_run_id()
    lock = QueryLock(target, run)
    try:
        probe_put_if_absent(target)
        log = CommitLog(target)
        if (newest := log.read().newest) is not None:
            raise CheckpointError(f"There is state of a query at {target.uri} already, up to epoch {newest.epoch}.")
        fence = log.fence(run)  # a query that has started here meanwhile publishes nothing any more
        _copy_objects(source, savepoint.manifest, target, copied)
        write_plan(target, savepoint.plan, replace=True)
        record = _record(savepoint, fence)
        put_record(target, record)
        epoch = savepoint.epoch
        manifest = replace(
            savepoint.manifest,
            run=run,
            spark_logs=record.listing,
            plan=plan_digest(savepoint.plan),
            number=NO_ENTRY,
            parent=NO_ENTRY,
            floor=0,
            kept_from=epoch,
            replays=(),
            replay_logs={},
        )
        return log.append_durable(run, manifest)
    finally:
        lock.release()


def _record(savepoint: Savepoint, fence: int) -> SparkRecord:
    """Spark's logs as the new query's: with its epoch committed, and another id."""
    metadata = json.dumps({"id": new_uuid()}, separators=(",", ":")).encode()
    files = {**savepoint.spark_logs, METADATA: metadata}
    name = filenames.spark_record_name(savepoint.epoch, fence)
    listing = {path: RecordedFile(name, crc32(data)) for path, data in files.items()}
    return SparkRecord(savepoint.epoch, name, listing, files)


def _copy_objects(source: ObjectStore, manifest: Manifest, target: ObjectStore, copied: Copied) -> None:
    there = {each.name: each.bytes for each in target.list(filenames.OBJECT_PREFIX)}
    for ref in manifest.objects:
        if there.get(ref.name) != ref.bytes:
            open_object(source, ref)  # says what is missing or damaged there
            target.put(ref.name, _parts(source, ref))
        open_object(target, ref).verify()
        copied(ref)


def _parts(store: ObjectStore, ref: ObjectRef) -> Iterator[bytes]:
    for start in range(0, ref.bytes, _PART_BYTES):
        yield store.get_range(ref.name, start, min(_PART_BYTES, ref.bytes - start))
