"""Spark's own logs of a query as they lie in its checkpoint: one file an epoch, named by its number. And the rewind.

A file that a rewind moves goes to ``<checkpoint>/tailrace-backup/``, where Spark does not look; what an earlier rewind
left there is replaced. Beside a local file lies Hadoop's checksum of it: it goes first, since a file without one is
read unchecked, but one with another file's is refused. In an object store there are none, and nothing can be moved: a
copy is put there, then the object is deleted. A crash in between leaves it where it was, for the next start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tailrace.env.files.disk import Disk
from tailrace.env.stores.local_store import LocalStore
from tailrace.env.stores.object_store import ObjectStore
from tailrace.errors import CheckpointError

BACKUP = "tailrace-backup"

_NUMBER = re.compile(r"(?:^|/)(\d+)$")


class SparkLogFolder:
    """The logs of a checkpoint on a disk. Stateless: safe from any thread."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self._root = root
        self._disk = disk or Disk()

    def epochs(self, log: str) -> list[int]:
        return spark_epochs(LocalStore(self._root, self._disk), log)

    def move_to_backup(self, log: str, epoch: int) -> None:
        """Take the epoch's file out of the log, durably. One that is gone already is fine."""
        folder, backup = self._root / log, self._root / BACKUP / log
        try:
            self._disk.make_folder(backup)
            for name in (f".{epoch}.crc", str(epoch)):
                if self._disk.exists(folder / name):
                    self._disk.replace(folder / name, backup / name)
            self._disk.sync_folder(backup)
            self._disk.sync_folder(folder)
        except OSError as error:
            raise CheckpointError(
                f"Cannot move {folder / str(epoch)} to {backup}: {error.strerror or error}. Spark's checkpoint is one "
                "epoch ahead of the state; make its folder writable, then start the query again."
            ) from error


class SparkLogObjects:
    """The logs of a checkpoint in an object store. Stateless: safe from any thread."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def epochs(self, log: str) -> list[int]:
        return spark_epochs(self._store, log)

    def move_to_backup(self, log: str, epoch: int) -> None:
        """Take the epoch's object out of the log. One that is gone already is fine."""
        name = f"{log}/{epoch}"
        try:
            data = self._store.get(name)
        except FileNotFoundError:
            return
        self._store.put(f"{BACKUP}/{name}", [data])
        self._store.delete([name])


def spark_epochs(store: ObjectStore, log: str) -> list[int]:
    """The epochs that have a file in ``commits`` or ``offsets``; empty where there is no checkpoint yet."""
    return numbers_of(stored.name for stored in store.list(f"{log}/"))


def numbers_of(names: Iterable[str]) -> list[int]:
    """Of files or their paths; Hadoop's checksums and what is half-written are none."""
    return sorted(int(found.group(1)) for name in names if (found := _NUMBER.search(name)))
