"""Savepoints: durable epochs with a name, kept until somebody deletes them.

A savepoint is one entry below ``savepoints/`` of a state location. It holds the epoch's manifest, the query's plan and
what Spark's logs need so that the epoch is committed and nothing behind it is planned; of the objects it has the names.
It is put once, under a name that is never used again, and never changed.

No query is stopped for it, and none is told. What keeps its objects from being cleaned:

- Who makes a savepoint puts it, *then* looks whether the log entry of its epoch is still there. If not,
  it is withdrawn.
- Who cleans deletes log entries, *then* lists savepoints, then deletes objects that none of them holds.

So either the entry's deletion came after the put, and the cleaner finds the savepoint, or the maker finds no entry. A
cleaner that was replaced and wakes up goes by the same order.

Format: an entry of kind ``savepoint``, docs/reference/log-format.md. Functions hold no state: safe from any thread.
"""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from zlib_ng.zlib_ng import compress, decompress
from zlib_ng.zlib_ng import error as CompressionError

from tailrace.commit.log import CommitLog
from tailrace.commit.manifest import Manifest
from tailrace.commit.plan_file import plan_digest, read_plan
from tailrace.commit.spark_logs.log_files import SparkLogPlace, is_log_path, is_whole
from tailrace.commit.spark_logs.records import fence_of, newest_record, recorded_bytes
from tailrace.env.clock import now, timestamp_text
from tailrace.env.files.disk import host_name, user_name
from tailrace.env.randomness import short_id
from tailrace.env.stores.object_store import ObjectStore, locate
from tailrace.errors import CheckpointError, CorruptionError
from tailrace.log import filenames
from tailrace.log.format import damaged, decode_entry, encode_entry
from tailrace.log.typed_json import MalformedError, item

_log = logging.getLogger("tailrace")

_KIND = "savepoint"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class Savepoint:
    """``file``: its name in the store. ``at``, ``by``: when it was made, by which user of which machine.

    ``source``: the state location that it was made of. ``spark_logs``: by path, the bytes of Spark's files.
    """

    file: str
    name: str
    at: str
    by: str
    source: str
    plan: Mapping[str, Any]
    manifest: Manifest
    spark_logs: Mapping[str, bytes]

    @property
    def epoch(self) -> int:
        return self.manifest.epoch

    @property
    def objects(self) -> dict[str, int]:
        """Bytes by name."""
        return {ref.name: ref.bytes for ref in self.manifest.objects}

    def encoded(self) -> bytes:
        files = {path: base64.b64encode(compress(data)).decode() for path, data in self.spark_logs.items()}
        said = {"name": self.name, "at": self.at, "by": self.by, "source": self.source}
        return encode_entry(
            _KIND, {**said, "plan": dict(self.plan), "manifest": self.manifest.to_json(), "spark_logs": files}
        )


def make_savepoint(store: ObjectStore, place: SparkLogPlace, name: str, epoch: int | None = None) -> Savepoint:
    """Give an epoch a name. ``place``: Spark's logs. ``epoch``: one that is kept; by default the newest that Spark has
    committed.
    """
    if not _NAME.fullmatch(name):
        raise CheckpointError(
            f"A savepoint's name has up to 64 letters, digits, '_', '-' and '.', and begins with none of the last two: "
            f"not {name!r}."
        )
    if read_plan(store) is None:
        raise CheckpointError(f"There is no state at {store.uri}. Say where the query's stateLocation is.")
    _refuse_taken(store, name)
    log = CommitLog(store)
    manifest, commit = _chosen(log, store, place, epoch)
    plan = read_plan(store, manifest.plan)
    if plan is None or plan_digest(plan) != manifest.plan:
        raise CorruptionError(damaged(locate(store, filenames.PLAN_NAME), f"it is not the plan of {manifest.epoch}"))
    stored = {each.name: each.bytes for each in store.list(filenames.OBJECT_PREFIX)}
    for ref in manifest.objects:
        if stored.get(ref.name) != ref.bytes:
            raise CorruptionError(damaged(locate(store, ref.name), "it is missing, or was cut off"))
    savepoint = Savepoint(
        file=filenames.savepoint_name(name, short_id()),
        name=name,
        at=timestamp_text(now()),
        by=f"{user_name()} on {host_name()}",
        source=store.uri,
        plan=plan,
        manifest=manifest,
        spark_logs={**recorded_bytes(store, manifest.spark_logs, manifest.spark_logs), **commit},
    )
    store.put_if_absent(savepoint.file, savepoint.encoded())
    try:
        log.entry(manifest.number)
    except FileNotFoundError:
        store.delete([savepoint.file])
        raise CheckpointError(
            f"Epoch {manifest.epoch} was cleaned at {store.uri} while the savepoint was made. Make it again, of a "
            "newer epoch."
        ) from None
    return savepoint


def _chosen(
    log: CommitLog, store: ObjectStore, place: SparkLogPlace, epoch: int | None
) -> tuple[Manifest, dict[str, bytes]]:
    """The manifest, and Spark's commit of it."""
    kept = kept_manifests(log)
    if not kept:
        raise CheckpointError(f"No epoch is durable at {store.uri} yet.")
    for manifest in kept:
        if epoch not in (None, manifest.epoch):
            continue
        if not manifest.spark_logs:
            raise CheckpointError(
                f"Spark's logs were not recorded with the state at {store.uri}, as Tailrace could not write to Spark's "
                "checkpoint: no query could be started from a savepoint. Use a checkpointLocation where it can."
            )
        if (data := commit_of(store, place, manifest)) is not None:
            return manifest, {f"commits/{manifest.epoch}": data}
    listed = ", ".join(str(each.epoch) for each in reversed(kept))
    if epoch is not None and epoch not in [each.epoch for each in kept]:
        raise CheckpointError(f"Epoch {epoch} is not kept at {store.uri}: kept are {listed}.")
    raise CheckpointError(
        f"Spark has not committed {'any of the epochs' if epoch is None else 'epoch'} {epoch or listed}: a sink may "
        "lack rows of it. Try again when the query has gone on."
    )


def commit_of(store: ObjectStore, place: SparkLogPlace, manifest: Manifest) -> bytes | None:
    """Spark's commit of the epoch, from its logs, or from the record of the next epoch; ``None``: it has none yet."""
    path = f"commits/{manifest.epoch}"
    if is_whole(data := place.read(path)):
        return data
    record = newest_record(store, manifest.epoch + 1, fence_of(manifest.spark_logs, manifest.epoch))
    if record is None or path not in record.listing:
        return None
    return recorded_bytes(store, record.listing, [path])[path]


def kept_manifests(log: CommitLog) -> list[Manifest]:
    """The newest durable epoch and those before it that are kept, newest first."""
    history = log.read()
    found: list[Manifest] = []
    manifest = history.newest
    if manifest is None and history.damaged:
        raise history.damaged[0].error
    while manifest is not None:
        found.append(manifest)
        try:
            entry = log.entry(manifest.parent)
        except FileNotFoundError:
            break
        manifest = entry if isinstance(entry, Manifest) else None
    return found


def savepoints(store: ObjectStore) -> list[Savepoint]:
    """All of a location, by name."""
    return [read_savepoint(store, name) for name in savepoint_files(store)]


def savepoint_files(store: ObjectStore) -> list[str]:
    found = (each.name for each in store.list(filenames.SAVEPOINT_PREFIX))
    return [name for name in found if filenames.savepoint_of(name) is not None]


def read_savepoint(store: ObjectStore, file: str) -> Savepoint:
    """``CorruptionError`` names the file where it is damaged."""
    where = locate(store, file)
    kind, body = decode_entry(store.get(file), where)
    try:
        if kind != _KIND:
            raise MalformedError(f"it is of kind {kind!r}")
        manifest = Manifest.from_json(item(body, "manifest", dict[str, Any]))
        packed = item(body, "spark_logs", dict[str, str])
        if not all(map(is_log_path, packed)):
            raise MalformedError("a file is none of Spark's logs")
        files = {path: decompress(base64.b64decode(data)) for path, data in packed.items()}
        plan = item(body, "plan", dict[str, Any])
        name, at, by, source = (item(body, each, str) for each in ("name", "at", "by", "source"))
    except (ValueError, CompressionError) as error:  # type: ignore[misc]  # which its stubs call no exception
        raise CorruptionError(damaged(where, str(error))) from None
    return Savepoint(file, name, at, by, source, plan, manifest, files)


def delete_savepoint(store: ObjectStore, savepoint: Savepoint) -> None:
    """Its objects go with the next start of the query, where nothing else needs them."""
    store.delete([savepoint.file])


def _refuse_taken(store: ObjectStore, name: str) -> None:
    if name in map(filenames.savepoint_of, savepoint_files(store)):
        raise CheckpointError(f"There is a savepoint {name!r} at {store.uri} already. Delete it, or take another name.")


class Pins:
    """The objects that savepoints of a location hold. What was read once is not read again. One thread at a time."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._by_file: dict[str, frozenset[str]] = {}

    def without(self, names: Iterable[str]) -> list[str]:
        """Those of the names that no savepoint holds. To be asked when the log entries are gone that list them."""
        names = list(names)
        if not any(name.startswith(filenames.OBJECT_PREFIX) for name in names):
            return names
        held: set[str] = set()
        for file in savepoint_files(self._store):
            if file not in self._by_file:
                try:
                    self._by_file[file] = frozenset(read_savepoint(self._store, file).objects)
                except FileNotFoundError:  # deleted a moment ago
                    continue
                except CorruptionError as error:
                    _log.warning("no object is deleted, since a savepoint that cannot be read may hold it: %s", error)
                    return [name for name in names if not name.startswith(filenames.OBJECT_PREFIX)]
            held |= self._by_file[file]
        return [name for name in names if name not in held]
