"""What lies in a query's checkpoint, and what a start would do with it. Reads only: nothing is locked, fenced or moved.

A query that runs meanwhile may delete what was just listed: such entries are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tailrace.commit.log import CommitLog, Damaged, Entry, Fence, History
from tailrace.commit.manifest import Manifest
from tailrace.commit.recovery.rebuild import behind, differing, logs_end, refuse_other_query
from tailrace.commit.recovery.recovery_point import RecoveryDecision, decide
from tailrace.commit.savepoints.savepoint import Pins
from tailrace.commit.spark_logs.log_files import SparkLogPlace
from tailrace.env.stores.object_store import ObjectStore
from tailrace.errors import TailraceError
from tailrace.ids import NO_EPOCH
from tailrace.log import filenames


@dataclass(frozen=True)
class Acknowledged:
    """How far one epoch has come: with Spark, and of ours, in this order, saved, uploaded, durable.

    ``saved`` and ``uploaded`` are bytes of its deltas, of all tries and servers, on this machine's disk and in the
    store; None where there is none, as after they were compacted or all their windows have closed, or where an epoch
    changed nothing. ``entry``: the number of the newest log entry that makes it durable.
    """

    epoch: int
    planned: bool
    committed: bool
    saved: int | None
    uploaded: int | None
    entry: int | None


@dataclass(frozen=True)
class Inspection:
    """What was found. ``entries``: all of the log that can be read, oldest first.

    ``recovery_point``: None where a start would be refused. ``moved``, ``written``: files of Spark's logs that a start
    would move to a backup, and write again from the state.
    """

    state: str
    commits: tuple[int, ...]
    offsets: tuple[int, ...]
    entries: tuple[Entry, ...]
    objects: dict[str, int]  # bytes, by name
    copies: dict[str, int]  # those of which this machine has a copy
    epoch_config: tuple[int, ...]  # epochs whose config is on record
    recovery_point: RecoveryDecision | None
    refusal: str
    moved: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    held: frozenset[str] = frozenset()  # objects that savepoints hold

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        return tuple(entry for entry in self.entries if isinstance(entry, Manifest))

    @property
    def needed(self) -> frozenset[str]:
        """Objects that a durable epoch lists."""
        return frozenset(ref.name for manifest in self.manifests for ref in manifest.objects)

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(sorted(self.needed - self.objects.keys()))

    @property
    def orphans(self) -> tuple[str, ...]:
        """Left by crashes, or of an epoch that is being committed."""
        return tuple(sorted(self.objects.keys() - self.needed - self.held))

    @property
    def epochs(self) -> tuple[Acknowledged, ...]:
        """The newest: from the oldest durable one that is kept to the newest that anybody knows of."""
        durable = {manifest.epoch: manifest.number for manifest in self.manifests}
        saved, uploaded = _deltas(self.copies), _deltas(self.objects)
        newest = max((*durable, *saved, *uploaded, *self.commits, *self.offsets), default=NO_EPOCH)
        oldest = min(durable, default=max(self.commits, default=NO_EPOCH))
        commits, offsets = set(self.commits), set(self.offsets)
        return tuple(
            Acknowledged(
                epoch, epoch in offsets, epoch in commits, saved.get(epoch), uploaded.get(epoch), durable.get(epoch)
            )
            for epoch in range(max(oldest, 0), newest + 1)
        )

    def verdict(self) -> str:
        """What a start would do, in a sentence or two."""
        if self.recovery_point is None:
            return f"A start would be refused. {self.refusal}"
        recovery_point = self.recovery_point
        if lost := self._lost(recovery_point):
            return (
                f"A start would fail: {_epoch(recovery_point.epoch)} needs {len(lost)} objects that are missing, such "
                f"as {lost[0]}. Restore them from a copy, or start with new locations."
            )
        return self._rebuilding() + self._opening(recovery_point)

    def _rebuilding(self) -> str:
        if not self.written:
            return ""
        return (
            f"A start would write {len(self.written)} files of Spark's checkpoint again, such as {self.written[0]}: "
            "they are missing or not what the state has recorded. "
        )

    def _opening(self, recovery_point: RecoveryDecision) -> str:
        logged = [path for path in self.moved if path.startswith(("offsets/", "commits/"))]
        if any(path.startswith("commits/") for path in logged):
            moved = " and then ".join(logged)
            return (
                f"A start would rewind Spark by moving {moved} to a backup, open {_epoch(recovery_point.epoch)} and "
                f"replay epoch {recovery_point.epoch + 1}, which Spark has committed and which is not durable here."
            )
        if recovery_point.replay is not None:
            return (
                f"A start would open {_epoch(recovery_point.epoch)} and replay epoch {recovery_point.epoch + 1}, "
                "which is durable here and not committed by Spark, with the same rows and epoch config."
            )
        if recovery_point.planned > recovery_point.epoch:
            return (
                f"A start would open {_epoch(recovery_point.epoch)} and run epoch {recovery_point.planned}, "
                "which Spark has planned."
            )
        return f"A start would open {_epoch(recovery_point.epoch)} and go on with epoch {recovery_point.epoch + 1}."

    def _lost(self, recovery_point: RecoveryDecision) -> list[str]:
        """Missing objects of the state that a start would open."""
        manifest = recovery_point.manifest
        if manifest is None:
            manifest = next((each for each in self.manifests if each.number == recovery_point.parent), None)
        return [] if manifest is None else [ref.name for ref in manifest.objects if ref.name not in self.objects]

    def to_json(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "spark": {"commits": list(self.commits), "offsets": list(self.offsets)},
            "epochs": [asdict(each) for each in self.epochs],
            "log": [_said(entry) for entry in self.entries],
            "objects": {
                "count": len(self.objects),
                "bytes": sum(self.objects.values()),
                "copies": len(self.copies),
                "orphans": list(self.orphans),
                "missing": list(self.missing),
            },
            "epoch_config": list(self.epoch_config),
            "restart": self.verdict(),
        }


def inspect(
    store: ObjectStore,
    commits: Sequence[int],
    offsets: Sequence[int],
    copies: ObjectStore | None = None,
    folder: SparkLogPlace | None = None,
) -> Inspection:
    """``commits``, ``offsets``: epochs in Spark's own logs; ``folder``: where these lie on a disk.

    ``copies``: where this machine has copies of objects.
    """
    log = CommitLog(store)
    entries: list[Entry] = []
    for number in log.numbers():
        try:
            entries.append(log.entry(number))
        except FileNotFoundError:
            continue
    recovery_point, refusal = None, ""
    moved: Sequence[str] = ()
    written: Sequence[str] = ()
    history = _newest_of(entries)
    try:
        end = None if folder is None else logs_end(folder, store, history, reread=True)
        if folder is None or end is None:
            recovery_point = decide(commits, offsets, history, store.uri)
            moved = recovery_point.rewind
        else:
            refuse_other_query(folder, store, end.listing)
            recovery_point = decide([end.committed], [end.planned], history, store.uri)
            moved, written = behind(folder, end), differing(folder, end)
    except TailraceError as error:
        refusal = str(error)
    records = (filenames.epoch_config_epoch(each.name) for each in store.list(filenames.EPOCH_CONFIG_PREFIX))
    objects = _sizes(store)
    return Inspection(
        state=store.uri,
        commits=tuple(commits),
        offsets=tuple(offsets),
        entries=tuple(entries),
        objects=objects,
        copies={} if copies is None else _sizes(copies),
        epoch_config=tuple(epoch for epoch in records if epoch is not None),
        recovery_point=recovery_point,
        refusal=refusal,
        moved=tuple(moved),
        written=tuple(written),
        held=frozenset(objects.keys() - Pins(store).without(objects)),
    )


def _sizes(store: ObjectStore) -> dict[str, int]:
    return {each.name: each.bytes for each in store.list(filenames.OBJECT_PREFIX)}


def _deltas(objects: Mapping[str, int]) -> dict[int, int]:
    """Bytes by epoch."""
    found: dict[int, int] = {}
    for name, size in objects.items():
        epoch = filenames.delta_epoch(name)
        if epoch is not None:
            found[epoch] = found.get(epoch, 0) + size
    return found


def _newest_of(entries: Sequence[Entry]) -> History:
    """The log as a start would read it."""
    newest: list[Entry] = []
    for entry in reversed(entries):
        newest.append(entry)
        if isinstance(entry, Manifest):
            break
    return History(tuple(entry.number for entry in entries), tuple(newest))


def _said(entry: Entry) -> dict[str, Any]:
    match entry:
        case Manifest():
            return {
                "number": entry.number,
                "kind": "durable",
                "epoch": entry.epoch,
                "run": entry.run,
                "try": entry.try_,
                "parent": entry.parent,
                "objects": len(entry.objects),
                "bytes": sum(ref.bytes for ref in entry.objects),
                "rows": dict(entry.rows),
                "epoch_config": dict(entry.epoch_config),
                "watermarks": dict(entry.watermarks),
            }
        case Fence():
            return {
                "number": entry.number,
                "kind": "fence",
                "run": entry.run,
                "host": entry.host,
                "pid": entry.pid,
                "at": entry.at,
            }
        case Damaged():
            return {"number": entry.number, "kind": "damaged", "error": str(entry.error)}
    raise AssertionError(entry)


def _epoch(number: int) -> str:
    return "an empty state" if number == NO_EPOCH else f"the state of epoch {number}"
