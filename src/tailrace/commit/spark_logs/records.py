"""What Spark's own logs say of an epoch, recorded with the state before a sink sees the epoch's rows.

Spark does not sync its logs, and they may lie on a disk that dies with its machine. Where they lie in an object store,
a driver that was replaced may wake up and move or write files of its successor's. So each epoch gets a record in the
state location: its offsets, Spark's commit of the epoch before, and what sources
have written since (``commit.spark_logs`` says which files there are). A record holds a file once, when it is new, and
lists for every other file that Spark would need to replay the epoch which record holds it. The manifest of an epoch has
the same list. The newest ``.compact`` file of a source makes its older ones unneeded, so that a list does not grow
with the query's history.

A record is named by its epoch and by the fence of its run. Of an epoch that is not durable, only the record with the
largest fence counts, and only if that is not below the fence of the run that made the epoch before it durable: others
were planned on top of an epoch that was run again, and no sink has seen them.

Functions here hold no state: safe from any thread.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from zlib_ng.zlib_ng import compress, crc32, decompress
from zlib_ng.zlib_ng import error as CompressionError

from tailrace.commit.spark_logs.log_files import METADATA, SparkLogPlace, by_sources, is_log_path, logged_offsets
from tailrace.env.stores.object_store import ObjectStore, locate
from tailrace.errors import CorruptionError, RewindNeeded
from tailrace.log import filenames
from tailrace.log.format import damaged, decode_entry, encode_entry
from tailrace.log.typed_json import MalformedError, item

_KIND = "spark_logs"


@dataclass(frozen=True)
class RecordedFile:
    """A file of Spark's logs: the record that holds it, and the CRC-32 of its bytes."""

    record: str
    crc32: int

    def to_json(self) -> list[Any]:
        return [self.record, self.crc32]

    def is_of(self, data: bytes | None) -> bool:
        return data is not None and crc32(data) == self.crc32


Listing = Mapping[str, RecordedFile]
"""By path."""


def listing_of(raw: Mapping[str, Any]) -> dict[str, RecordedFile]:
    """As it is in a manifest or a record. ``MalformedError`` where it is not one."""
    listing: dict[str, RecordedFile] = {}
    for path, each in raw.items():
        if not is_log_path(path):
            raise MalformedError("a file is none of Spark's logs")
        if not isinstance(each, list | tuple) or list(map(type, each)) != [str, int]:
            raise MalformedError("a file of Spark's logs has no record and checksum")
        record, crc = each
        if filenames.spark_record_parts(record) is None:
            raise MalformedError("a file of Spark's logs is not in a record of them")
        listing[path] = RecordedFile(record, crc)
    return listing


@dataclass(frozen=True)
class SparkRecord:
    """``listing``: all that Spark needs to replay the epoch. ``files``: those of it that no earlier record holds."""

    epoch: int
    name: str
    listing: Listing
    files: Mapping[str, bytes]


def take_record(
    folder: SparkLogPlace, epoch: int, fence: int, before: Listing, at_start: Listing | None = None
) -> SparkRecord:
    """The record of an epoch that Spark is running.

    ``before``: the listing of the epoch before. ``at_start``: what Spark's logs were when the run began.

    Raises ``RewindNeeded`` where a file is gone that Spark has just written: a record without it would replay the epoch
    without its rows; and where lists that Spark has just compacted are not those that were recorded.
    """
    name = filenames.spark_record_name(epoch, fence)
    listing: dict[str, RecordedFile] = {}
    files: dict[str, bytes] = {}
    for path in _needed(folder, epoch):
        if path in before:
            listing[path] = before[path]
        elif (data := folder.read(path)) is not None:
            files[path] = data
            listing[path] = RecordedFile(name, crc32(data))
    offsets = files.get(f"offsets/{epoch}")
    if offsets is None or not all(_reaches(listing, number) for number in logged_offsets(offsets)):
        missing = f"offsets/{epoch}" if offsets is None else f"a list of files in sources/ that offsets/{epoch} names"
        raise RewindNeeded(
            f"Spark runs epoch {epoch}, and {missing} is gone from {folder.root}: a driver that this one has replaced "
            "moves files there, or something else does. If this comes again and again, give the query a "
            "checkpointLocation of its own"
        )
    compacted = (path for path in files if path.endswith(".compact") and path not in (at_start or {}))
    if (other := _compacted_otherwise(folder, compacted, before)) is not None:
        raise RewindNeeded(
            f"Spark has compacted {other} of {folder.root}, which is not the list that it had written: a driver that "
            "this one has replaced writes there, or something else does. Files that are named there would never be read"
        )
    return SparkRecord(epoch, name, listing, files)


def _compacted_otherwise(folder: SparkLogPlace, compacted: Iterable[str], before: Listing) -> str | None:
    """A list that went into a new compact one and is not as it was recorded. ``compacted``: by this run's Spark.

    Spark reads the lists again to compact them. One that a late request of another driver has taken away, and a third
    one has written anew, would be in there for ever.
    """
    sources = by_sources(before)
    for compact in compacted:
        log, _, name = compact.rpartition("/")
        lists = sources.get(log, {})
        first = max((number for number, path in lists.items() if path.endswith(".compact")), default=0)
        for number in range(first, int(name.partition(".")[0])):
            path = lists.get(number)
            data = None if path is None else folder.read(path)
            if path is not None and data is not None and not before[path].is_of(data):
                return path
    return None


def put_record(store: ObjectStore, record: SparkRecord) -> None:
    body = {
        "epoch": record.epoch,
        "listing": {path: each.to_json() for path, each in record.listing.items()},
        "files": {path: base64.b64encode(compress(data)).decode() for path, data in record.files.items()},
    }
    store.put(record.name, [encode_entry(_KIND, body)])


def read_record(store: ObjectStore, name: str) -> SparkRecord:
    """``CorruptionError`` names the file where it is missing or damaged."""
    where = locate(store, name)
    try:
        kind, body = decode_entry(store.get(name), where)
    except FileNotFoundError:
        raise CorruptionError(damaged(where, "it is missing")) from None
    if kind != _KIND:
        raise CorruptionError(damaged(where, "it is not a record of Spark's logs"))
    try:
        packed = item(body, "files", dict[str, str])
        files = {path: decompress(base64.b64decode(data)) for path, data in packed.items()}
        listing = listing_of(item(body, "listing", dict[str, Any]))
        record = SparkRecord(item(body, "epoch", int), name, listing, files)
    except (ValueError, CompressionError) as error:  # type: ignore[misc]  # which its stubs call no exception
        raise CorruptionError(damaged(where, f"it is malformed ({error})")) from None
    if record.epoch != _parts(name)[0] or f"offsets/{record.epoch}" not in record.listing:
        raise CorruptionError(damaged(where, f"it does not say what epoch {_parts(name)[0]} reads"))
    return record


def newest_record(store: ObjectStore, epoch: int, fence_min: int) -> SparkRecord | None:
    """The record of an epoch that is not durable, where one counts."""
    found = (_parts(name) for name in record_names(store))
    fences = [fence for recorded, fence in found if recorded == epoch and fence >= fence_min]
    return read_record(store, filenames.spark_record_name(epoch, max(fences))) if fences else None


def record_names(store: ObjectStore) -> list[str]:
    found = (each.name for each in store.list(filenames.SPARK_RECORD_PREFIX))
    return [name for name in found if filenames.spark_record_parts(name) is not None]


def fence_of(listing: Listing, epoch: int) -> int:
    """The fence of the run that has made ``epoch``, whose listing this is, durable."""
    return _parts(listing[f"offsets/{epoch}"].record)[1]


def recorded_bytes(store: ObjectStore, listing: Listing, paths: Iterable[str]) -> dict[str, bytes]:
    """The files of these paths, each checked."""
    records: dict[str, SparkRecord] = {}
    found: dict[str, bytes] = {}
    for path in paths:
        entry = listing[path]
        if entry.record not in records:
            records[entry.record] = read_record(store, entry.record)
        data = records[entry.record].files.get(path)
        if data is None or not entry.is_of(data):
            raise CorruptionError(damaged(locate(store, entry.record), f"it does not hold Spark's {path} as recorded"))
        found[path] = data
    return found


def _needed(folder: SparkLogPlace, epoch: int) -> list[str]:
    """What Spark reads to replay ``epoch``.

    Of a source, the newest compact list and what follows it. Also the compact list before that one: from the distance
    of the two Spark derives how often it compacts, and from that the names of files.
    """
    before = [f"offsets/{epoch - 1}", f"commits/{epoch - 1}"] if epoch else []
    sources: list[str] = []
    for files in folder.source_files().values():
        compact = sorted(number for number, path in files.items() if path.endswith(".compact"))[-2:]
        first = compact[-1] if compact else 0
        sources += [path for number, path in sorted(files.items()) if number >= first or number in compact]
    return [METADATA, *sorted(sources), *before, f"offsets/{epoch}"]


def _reaches(listing: Listing, number: int) -> bool:
    """Whether some source has every list of files up to this one, from its newest compact list on."""
    by_source = by_sources(listing).values()
    firsts = [max((n for n, path in files.items() if path.endswith(".compact")), default=0) for files in by_source]
    return any(
        all(each in files for each in range(first, number + 1)) for files, first in zip(by_source, firsts, strict=True)
    )


def _parts(name: str) -> tuple[int, int]:
    parts = filenames.spark_record_parts(name)
    assert parts is not None, name
    return parts
