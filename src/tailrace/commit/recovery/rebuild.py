"""Spark's logs, made again what the state says they are.

Spark does not sync its logs and may lose any of them, whole or in part, with the machine's power; a disk may be lost
with all of them; a JVM that outlives its driver may write to them behind a start, and so may a driver that was replaced
where they lie in an object store. The state location has what a
start needs (``commit.spark_logs.records``), so a start asks the logs for little:

- *d* is the newest durable epoch. If the record of epoch *d + 1* is there, a sink may have seen that epoch: the logs
  become those with *d* committed and *d + 1* planned, and Spark replays *d + 1* with the recorded offsets.
- If there is none, no sink has seen *d + 1*. Where Spark's commit of *d* is whole, the logs become those with *d*
  committed and nothing planned. Where it is not, those with *d - 1* committed and *d* planned: the start opens the
  manifest before *d*, and Spark replays *d*. What was planned behind that goes: it has reached no sink, and nobody can
  tell whether what is there of it is whole.

- Where the query has gone back to *d* and what followed it is still to be run again (``go_back``), the logs become
  those with *d* committed and *d + 1* planned as it was then.

So the logs end at ``LogsEnd``. What lies behind it is moved to the backup, offsets first, then commits (else Spark
would skip an epoch), then what sources have logged. Then what is missing or differs is written. Nothing that a start
decides by is changed by these steps, so one that crashes between them is simply repeated.

Functions here hold no state.
"""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.commit.log import CommitLog, History
from tailrace.commit.manifest import Manifest
from tailrace.commit.spark_logs.log_files import METADATA, SparkLogPlace, is_first_offsets, is_whole, query_id
from tailrace.commit.spark_logs.records import Listing, SparkRecord, fence_of, newest_record, recorded_bytes
from tailrace.env.stores.object_store import ObjectStore, locate
from tailrace.errors import CheckpointError, CorruptionError
from tailrace.ids import NO_EPOCH
from tailrace.log import filenames
from tailrace.log.format import damaged


@dataclass(frozen=True)
class LogsEnd:
    """Where Spark's logs end for a start: newest commit, newest offset, and the files, by path, that it needs.

    ``record``: that of the epoch ``planned``, where no manifest has its files. ``replay``: the manifest that this epoch
    had before the query went back.
    """

    committed: int
    planned: int
    listing: Listing
    record: SparkRecord | None = None
    replay: Manifest | None = None


def logs_end(folder: SparkLogPlace, store: ObjectStore, history: History, reread: bool) -> LogsEnd | None:
    """Where a start lets Spark's logs end. ``None`` where the state does not say, so that the logs must be taken as

    they are: it was made with a checkpoint elsewhere, or they are ahead of it by more than a crash can explain.
    """
    newest = history.newest
    d = newest.epoch if newest is not None else NO_EPOCH
    if newest is not None and not newest.spark_logs:
        return None
    c = max(folder.epochs("commits"), default=NO_EPOCH)
    if history.damaged and (c != d or (newest is None and not folder.epochs("offsets"))):
        # An empty checkpoint proves nothing of a damaged entry: it may have been lost with its disk.
        raise history.damaged[0].error
    if newest is not None and newest.replayed_until > d:
        return _next_replay(store, newest)
    record = newest_record(store, d + 1, fence_of(newest.spark_logs, d) if newest is not None else 0)
    if c > d + 1 or (c == d + 1 and (record is None or not reread)):
        return None
    if record is not None:
        return LogsEnd(d, d + 1, record.listing, record)
    if newest is None:
        return LogsEnd(NO_EPOCH, NO_EPOCH, {})
    commit = f"commits/{d}"  # listed where the state was made of a savepoint
    committed = d if commit in newest.spark_logs or is_whole(folder.read(commit)) else d - 1
    return LogsEnd(committed, d, newest.spark_logs)


def _next_replay(store: ObjectStore, newest: Manifest) -> LogsEnd:
    d = newest.epoch
    if not newest.replays:
        return LogsEnd(d, d + 1, newest.replay_logs)
    replay = CommitLog(store).manifest(newest.replays[0])
    if replay.epoch != d + 1:
        where = locate(store, filenames.entry_name(replay.number))
        raise CorruptionError(damaged(where, f"it holds epoch {replay.epoch} and should hold epoch {d + 1}"))
    return LogsEnd(d, d + 1, replay.spark_logs, replay=replay)


def refuse_other_query(folder: SparkLogPlace, store: ObjectStore, listing: Listing) -> None:
    """Refuse a checkpoint that is another query's."""
    metadata = folder.read(METADATA)
    here = query_id(metadata)
    if here is None or METADATA not in listing or listing[METADATA].is_of(metadata):
        return
    recorded = query_id(recorded_bytes(store, listing, [METADATA])[METADATA])
    if here != recorded:
        raise CheckpointError(
            f"The checkpoint {folder.root} is that of query {here}, and the state at {store.uri} belongs to query "
            f"{recorded}. Set checkpointLocation and stateLocation to two that belong together, or start with new "
            "locations."
        )


def behind(folder: SparkLogPlace, end: LogsEnd) -> list[str]:
    """Files that must leave the logs, in this order."""
    offsets = [epoch for epoch in folder.epochs("offsets") if epoch > end.planned]
    commits = [epoch for epoch in folder.epochs("commits") if epoch > end.committed]
    paths = [f"offsets/{epoch}" for epoch in reversed(offsets)] + [f"commits/{epoch}" for epoch in reversed(commits)]
    for files in folder.source_files().values():
        listed = [number for number, path in files.items() if path in end.listing]
        first, last = min(listed, default=NO_EPOCH), max(listed, default=NO_EPOCH)
        later = [path for number, path in sorted(files.items(), reverse=True) if number > last]
        # A compact list of another timeline between ours would make Spark derive another distance of such lists.
        later += [p for n, p in sorted(files.items()) if first < n < last and _is_compact(p) and p not in end.listing]
        # Where a source begins is no part of an epoch: rows between two starts would be skipped without it.
        paths += [path for path in later if not is_first_offsets(path, folder.read(path))]
    metadata = folder.read(METADATA)
    if metadata is not None and METADATA in end.listing and not end.listing[METADATA].is_of(metadata):
        paths.append(METADATA)  # cut off, or of a query that has done nothing: the recorded one is written
    elif metadata is not None and METADATA not in end.listing and query_id(metadata) is None:
        paths.append(METADATA)  # cut off before the first epoch: Spark makes another
    return paths


def differing(folder: SparkLogPlace, end: LogsEnd) -> list[str]:
    """Files that must be written, as they are missing or not what was recorded."""
    # What sources have logged before the offsets that speak of it.
    return [path for path in sorted(end.listing, reverse=True) if not end.listing[path].is_of(folder.read(path))]


def changed_at_start(folder: SparkLogPlace, end: LogsEnd) -> str | None:
    """A file that is not what Spark should have read when it started. To be asked in the first epoch of a run.

    Without its plan, Spark plans an epoch afresh that a sink has seen. Without a list of files, it begins another list
    of that number, and passes over what that has.
    """
    sources = folder.source_files()
    for path in sorted(end.listing):
        log = path.rpartition("/")[0]
        if log in ("", "commits"):
            continue  # without a commit, Spark gives an epoch of another number
        data = folder.read(path)
        compacted = any(_is_compact(each) and each not in end.listing for each in sources.get(log, {}).values())
        if not end.listing[path].is_of(data) and not (data is None and compacted):
            return path
    return None


def _is_compact(path: str) -> bool:
    return path.endswith(".compact")
