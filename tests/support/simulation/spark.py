"""A model of Spark's micro-batches: its logs, its file manager, a file source, and where it continues after a start.

The rule, with Spark's own silent skip: the newest offsets decide. If that epoch has a commit, the next one is planned;
else it is run again, *whatever* the commit log says of the epochs before it.

The source is one of files, each a stretch of rows: it logs the files that it gives under a number, every third time
all of them so far (``.compact``), and offsets name such a number. What is not logged is never read.

A log's file is written under a temporary name, then renamed without replacing another; Hadoop's checksum follows it.
Nothing is synced: with the power, any of it may go, in whole or in part. In a checkpoint that several machines see
(``shared``: an object store) there are no checksums, and a file lasts once it has its name.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from support.simulation.disk import SimDisk
from support.simulation.rows import ROWS_MAX
from support.simulation.scheduler import Scheduler

OFFSETS, COMMITS, SOURCE_LOG = "offsets", "commits", "sources/0"
COMPACT_EVERY = 3
IDLE_S = 10.0
"""So long the source may have nothing: a server that falls silent then is called by nobody."""
Files = Mapping[str, bytes]
"""By path below the checkpoint, checksums included."""


class SparkFailed(Exception):
    """Spark's query ends by itself."""


@dataclass(frozen=True)
class Batch:
    """An epoch and its stretch of the source."""

    epoch: int
    start: int
    end: int


@dataclass(frozen=True)
class Resumed:
    """Where Spark continues: the next epoch to plan, or the one that is ``planned`` already."""

    epoch: int
    done: int  # up to where the source is committed
    planned: Batch | None
    logged: int  # up to where the source has logged files
    number: int  # of the source's newest log


class Spark:
    """One run of Spark's query. ``rows``: how many the source has by the end. ``idle``: how often it has nothing."""

    def __init__(
        self, scheduler: Scheduler, disk: SimDisk, root: str, rows: int, kept: int, shared: bool, idle: float
    ) -> None:
        assert rows <= ROWS_MAX
        self._scheduler = scheduler
        self._disk = disk
        self._root = root
        self._rows = rows
        self._kept = kept
        self._shared = shared
        self._idle = idle
        self._put = disk.put_durably if shared else disk.put_unsynced
        self._at = Resumed(0, 0, None, 0, -1)
        self._returned = False  # the batch function, and Spark's commit is still to be written
        self.at_return: Callable[[], None] | None = None  # called when the batch function has returned

    def start(self) -> None:
        """Where to go on, from the logs."""
        self._scheduler.point("spark starts")
        files = files_of(self._disk, self._root)
        if "metadata" not in files:
            self._write("metadata", {"id": f"{self._scheduler.random.getrandbits(64):016x}"})
        else:
            _json(files["metadata"], "metadata")
        self._at = resume(files)

    def next(self) -> Batch | None:
        """The next epoch to run; None at the end of the source."""
        at = self._at
        if at.planned is None:
            if at.done == self._rows:
                return None
            if self._scheduler.random.random() < self._idle:
                self._scheduler.sleep(IDLE_S)
            logged, number = at.logged, at.number
            if logged == at.done or (logged < self._rows and self._scheduler.random.random() < 0.5):
                first, logged = logged, min(self._rows, logged + self._scheduler.random.choice((1, 1, 2, 3, 5)))
                number += 1
                self._log_files(number, first, logged)
            batch = Batch(at.epoch, at.done, logged)
            self._write(f"{OFFSETS}/{at.epoch}", {"batchTimestampMs": 0}, {"logOffset": number})
            self._at = Resumed(at.epoch, at.done, batch, logged, number)
            self._purge()
        return self._at.planned

    def finish(self) -> None:
        """The batch function has returned."""
        at = self._at
        assert at.planned is not None
        self._returned = True
        if self.at_return is not None:
            self.at_return()
            self._scheduler.sleep(1.0)
        self._write(f"{COMMITS}/{at.epoch}", {"nextBatchWatermarkMs": 0})
        self._returned = False
        self._at = Resumed(at.epoch + 1, at.planned.end, None, at.logged, at.number)

    def live_on(self) -> None:
        """What a JVM does whose driver is gone: what it is about, up to the next call of the batch function."""
        self.at_return = None
        if self._at.planned is not None and not self._returned:
            return
        for step in (self.finish, self.next) if self._returned else (self.next,):
            self._scheduler.sleep(self._scheduler.random.choice((0.0, 0.5, 2.0, 20.0)))
            step()

    def _log_files(self, number: int, first: int, end: int) -> None:
        lines = [{"batchId": number, "first": first, "end": end}]
        compact = _suffix(number)
        if compact:
            files = files_of(self._disk, self._root)
            _refuse_holes(files, number)
            lines = [*_file_lines(files), *lines]
        self._write(f"{SOURCE_LOG}/{number}{compact}", *lines)
        if compact:
            least = (number - self._kept + 1) // COMPACT_EVERY * COMPACT_EVERY - 1
            for path in source_paths(files_of(self._disk, self._root)):
                if source_number(path) < least:
                    self._remove(path)

    def _purge(self) -> None:
        for path in files_of(self._disk, self._root):
            log, _, epoch = path.partition("/")
            if log in (OFFSETS, COMMITS) and epoch.isdigit() and int(epoch) < self._at.epoch - self._kept:
                self._remove(path)

    def _remove(self, path: str) -> None:
        folder, name = self._place(path)
        self._scheduler.point(f"purge {path}")
        self._put(folder, name, None)
        self._put(folder, f".{name}.crc", None)

    def _write(self, path: str, *lines: dict[str, Any]) -> None:
        folder, name = self._place(path)
        point, put = self._scheduler.point, self._put
        temporary = f".{name}.{self._scheduler.random.getrandbits(64):016x}.tmp"
        version = [] if path == "metadata" else [b"v1"]
        nonce = self._scheduler.random.getrandbits(32)  # no two files are the same by chance
        data = b"\n".join([*version, *(json.dumps({**line, "n": nonce}).encode() for line in lines)])
        point(f"create {path}")
        put(folder, temporary, data)
        point(f"spark names {path}")
        if self._disk.data(folder, name) is not None:
            raise SparkFailed(f"Multiple streaming jobs detected: {path} is there already")
        put(folder, name, data)
        put(folder, temporary, None)
        if not self._shared:
            point(f"checksum of {path}")
            put(folder, f".{name}.crc", b"%d" % zlib.crc32(data))

    def _place(self, path: str) -> tuple[str, str]:
        folder, _, name = f"{self._root}/{path}".rpartition("/")
        return folder, name


def files_of(disk: SimDisk, root: str) -> dict[str, bytes]:
    """As a process would find them now. No operation of the simulation."""
    found: dict[str, bytes] = {}
    for log in ("", OFFSETS, COMMITS, SOURCE_LOG):
        folder = f"{root}/{log}".rstrip("/")
        for name in list(disk.names(folder)):
            data = disk.data(folder, name)
            assert data is not None
            found[f"{log}/{name}".lstrip("/")] = data
    return found


def resume(files: Files) -> Resumed:
    """Where Spark continues with these files. Hadoop refuses one that does not fit its checksum, where it has one."""
    number = max(map(source_number, source_paths(files)), default=-1)
    _refuse_lost_lists(files, number)
    lines = _file_lines(files)
    logged = max((line["end"] for line in lines), default=0)
    offsets, commits = epochs(files, OFFSETS), epochs(files, COMMITS)
    if not offsets:
        return Resumed(0, 0, None, logged, number)
    newest = max(offsets)
    last = _offset(files, newest)
    first = -1 if newest == 0 else _offset(files, newest - 1)
    ends = {line["batchId"]: line["end"] for line in lines}
    done = 0 if first < 0 else ends.get(first, -1)
    given = [line for line in lines if first < line["batchId"] <= last]
    # Files that are in no list are not read, and nobody says so.
    start, end = min((line["first"] for line in given), default=-1), max((line["end"] for line in given), default=-1)
    batch = Batch(newest, start, end)
    if commits:
        _json_lines(files, f"{COMMITS}/{max(commits)}")
    if commits and max(commits) == newest:
        return Resumed(newest + 1, batch.end, None, logged, number)
    return Resumed(newest, done, batch, logged, number)


def epochs(files: Files, log: str) -> list[int]:
    names = (path.removeprefix(f"{log}/") for path in files if path.startswith(f"{log}/"))
    return sorted(int(name) for name in names if name.isdigit())


def source_paths(files: Files) -> list[str]:
    paths = (path for path in files if path.startswith(f"{SOURCE_LOG}/"))
    return [path for path in paths if path.rpartition("/")[2].removesuffix(".compact").isdigit()]


def source_number(path: str) -> int:
    return int(path.rpartition("/")[2].removesuffix(".compact"))


def end_of(files: Files, epoch: int) -> int | None:
    """Where the epoch's stretch ends, as planned; None where that cannot be read."""
    try:
        number = _offset(files, epoch)
        return next((line["end"] for line in _file_lines(files) if line["batchId"] == number), None)
    except SparkFailed:
        return None


def _file_lines(files: Files) -> list[dict[str, Any]]:
    """What the source has logged: from its newest compact file on."""
    paths = {source_number(path): path for path in sorted(source_paths(files))}
    first = max((number for number, path in paths.items() if path.endswith(".compact")), default=0)
    return [line for number in sorted(paths) if number >= first for line in _json_lines(files, paths[number])]


def _refuse_lost_lists(files: Files, latest: int) -> None:
    """A start reads every list of files, from the newest compact one on that there should be."""
    for each in range(max(0, (latest + 1) // COMPACT_EVERY * COMPACT_EVERY - 1), latest + 1):
        path = f"{SOURCE_LOG}/{each}{_suffix(each)}"
        if path not in files:
            raise SparkFailed(f"{path} doesn't exist (latestId: {latest}, compactInterval: {COMPACT_EVERY})")


def _suffix(number: int) -> str:
    return ".compact" if (number + 1) % COMPACT_EVERY == 0 else ""


def _refuse_holes(files: Files, number: int) -> None:
    """Of what is compacted with this number, every list must be there, as Spark would have it."""
    paths = {source_number(path): path for path in source_paths(files)}
    first = max((number for number, path in paths.items() if path.endswith(".compact")), default=0)
    for each in range(first, number):
        if each not in paths:
            raise SparkFailed(f"[BATCH_METADATA_NOT_FOUND] Unable to find batch {SOURCE_LOG}/{each}")


def _offset(files: Files, epoch: int) -> int:
    lines = _json_lines(files, f"{OFFSETS}/{epoch}")
    if len(lines) != 2:
        raise SparkFailed(f"{OFFSETS}/{epoch} has too few lines")
    return int(lines[1]["logOffset"])


def _json_lines(files: Files, path: str) -> list[dict[str, Any]]:
    folder, _, name = path.rpartition("/")
    if path not in files:
        raise SparkFailed(f"batch {name.removesuffix('.compact')} doesn't exist: {path} is missing")
    data = files[path]
    checksum = files.get(f"{folder}/.{name}.crc")
    if checksum is not None and checksum != b"%d" % zlib.crc32(data):
        raise SparkFailed(f"checksum error in {path}")
    version, *lines = data.split(b"\n")
    if version != b"v1" or not lines:
        raise SparkFailed(f"{path} is incomplete")
    return [_json(line, path) for line in lines]


def _json(data: bytes, path: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(data)
    except ValueError:
        raise SparkFailed(f"{path} cannot be read") from None
    return found
