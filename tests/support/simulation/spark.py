"""A model of Spark's micro-batches: its two logs, its file manager, and the rule by which it goes on after a start.

The rule, with Spark's own silent skip: the newest offsets decide. If that epoch has a commit, the next one is planned;
else it is run again, *whatever* the commit log says of the epochs before it.

A log's file is written under a temporary name, then renamed without replacing another; Hadoop's checksum follows it.
Spark does not sync: here its files last from the moment they have their name, since what a machine's power takes from
Spark's own log no one else can give back.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from support.simulation.disk import SimDisk
from support.simulation.rows import ROWS_MAX
from support.simulation.scheduler import Scheduler

OFFSETS, COMMITS = "offsets", "commits"


class SparkFailed(Exception):
    """Spark's query ends by itself."""


@dataclass(frozen=True)
class Batch:
    """An epoch and its stretch of the source."""

    epoch: int
    start: int
    end: int


class Spark:
    """One run of Spark's query. ``rows``: how many the source has by the end."""

    def __init__(self, scheduler: Scheduler, disk: SimDisk, root: str, rows: int, kept: int) -> None:
        assert rows <= ROWS_MAX
        self._scheduler = scheduler
        self._disk = disk
        self._root = root
        self._rows = rows
        self._kept = kept
        self._epoch = 0
        self._done = 0  # up to where the source is committed
        self._planned: Batch | None = None

    def start(self) -> None:
        """Where to go on, from the logs."""
        self._scheduler.point("spark starts")
        offsets, commits = epochs(self._disk, self._root, OFFSETS), epochs(self._disk, self._root, COMMITS)
        if not offsets:
            return
        newest = max(offsets)
        end = self._read(OFFSETS, newest)
        start = 0 if newest == 0 else self._read(OFFSETS, newest - 1)
        if commits and max(commits) == newest:
            self._read(COMMITS, newest)
            self._epoch, self._done = newest + 1, end
        else:
            self._epoch, self._done = newest, start
            self._planned = Batch(newest, start, end)

    def next(self) -> Batch | None:
        """The next epoch to run; None at the end of the source."""
        if self._planned is None:
            if self._done == self._rows:
                return None
            end = min(self._rows, self._done + self._scheduler.random.choice((1, 1, 2, 3, 5)))
            self._write(OFFSETS, self._epoch, end)
            self._planned = Batch(self._epoch, self._done, end)
            self._purge()
        return self._planned

    def finish(self) -> None:
        """The batch function has returned."""
        assert self._planned is not None
        self._write(COMMITS, self._epoch, 0)
        self._epoch, self._done, self._planned = self._epoch + 1, self._planned.end, None

    def _purge(self) -> None:
        for log in (OFFSETS, COMMITS):
            for epoch in epochs(self._disk, self._root, log):
                if epoch < self._epoch - self._kept:
                    self._scheduler.point(f"purge {log}/{epoch}")
                    self._disk.put_durably(f"{self._root}/{log}", str(epoch), None)
                    self._disk.put_durably(f"{self._root}/{log}", f".{epoch}.crc", None)

    def _write(self, log: str, epoch: int, content: int) -> None:
        folder, point, put = f"{self._root}/{log}", self._scheduler.point, self._disk.put_durably
        temporary = f".{epoch}.{self._scheduler.random.getrandbits(64):016x}.tmp"
        data = f"v1\n{epoch}\n{content}\n{self._scheduler.random.getrandbits(32)}".encode()
        point(f"create {log}/{temporary[:4]}")
        put(folder, temporary, data)
        put(folder, f".{temporary}.crc", b"%d" % zlib.crc32(data))
        point(f"spark names {log}/{epoch}")
        if self._disk.data(folder, str(epoch)) is not None:
            raise SparkFailed(f"multiple streaming jobs: {log}/{epoch} is there already")
        put(folder, str(epoch), data)
        put(folder, temporary, None)
        point(f"checksum of {log}/{epoch}")
        put(folder, f".{epoch}.crc", b"%d" % zlib.crc32(data))
        put(folder, f".{temporary}.crc", None)

    def _read(self, log: str, epoch: int) -> int:
        return read(self._disk, self._root, log, epoch)


def epochs(disk: SimDisk, root: str, log: str) -> list[int]:
    return sorted(int(name) for name in disk.names(f"{root}/{log}") if name.isdigit())


def end_of(disk: SimDisk, root: str, epoch: int) -> int | None:
    """Where the epoch's stretch ends, as planned; None where it is not."""
    data = disk.data(f"{root}/{OFFSETS}", str(epoch))
    return None if data is None else int(data.split(b"\n")[2])


def read(disk: SimDisk, root: str, log: str, epoch: int) -> int:
    """A file's content. Hadoop refuses one that does not fit its checksum; without a checksum it is read unchecked."""
    folder = f"{root}/{log}"
    data, checksum = disk.data(folder, str(epoch)), disk.data(folder, f".{epoch}.crc")
    if data is None:
        raise SparkFailed(f"{log}/{epoch} is missing")
    if checksum is not None and checksum != b"%d" % zlib.crc32(data):
        raise SparkFailed(f"checksum error in {log}/{epoch}")
    return int(data.split(b"\n")[2])
