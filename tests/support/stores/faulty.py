"""A disk and an object store that fail from a seed. For tests: what they do is decided by the seed alone.

``SimulatedDisk`` keeps files in memory and knows what was synced. A crash stops it in the middle of an operation; after
``restart`` each name that was not synced is there or not, as the seed says, and a file that was being written holds a
part of its bytes. ``FaultyStore`` wraps any store: it crashes, fails before or after having worked, or answers a put
too late.

Threading: one lock around each operation, so that operations have an order; that order is the seed's only if one thread
works at a time.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.env.files.disk import Disk
from tailrace.env.stores.object_store import ObjectStore, StoredObject
from tailrace.errors import CheckpointError


class SimulatedCrash(BaseException):
    """The machine stops here. Not an ``Exception``: no handler of the code under test may live on."""


@dataclass
class _File:
    data: bytes
    synced: bool


class SimulatedDisk(Disk):
    """A disk in memory. ``crash_at``: the number of the operation that does not finish; -1 for none."""

    def __init__(self, seed: int, crash_at: int = -1) -> None:
        self._random = random.Random(seed)
        self._guard = threading.RLock()
        self._live: dict[Path, dict[str, _File]] = {}
        self._durable: dict[Path, dict[str, _File]] = {}
        self._crashed = False
        self.crash_at = crash_at
        self.operations = 0

    def restart(self, crash_at: int = -1) -> None:
        """Back after a crash, with what a disk may have kept."""
        with self._guard:
            for folder, live in self._live.items():
                durable = self._durable[folder]
                kept: dict[str, _File] = {}
                for name in sorted({*live, *durable}):
                    chosen = self._random.choice([live.get(name), durable.get(name)])
                    if chosen is not None:
                        kept[name] = chosen
                for file in kept.values():
                    if not file.synced:
                        file.data = file.data[: self._random.randint(0, len(file.data))]
                        file.synced = True
                self._live[folder], self._durable[folder] = kept, dict(kept)
            self._crashed, self.crash_at, self.operations = False, crash_at, 0

    def write_synced(self, path: Path, parts: Iterable[Any]) -> int:
        data = b"".join(bytes(part) for part in parts)
        with self._operation():
            if path.name in self._folder(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            file = self._folder(path)[path.name] = _File(data, synced=False)
        with self._operation():
            file.synced = True
        return len(data)

    def link(self, source: Path, target: Path) -> bool:
        with self._operation():
            if target.name in self._folder(target):
                return False
            self._folder(target)[target.name] = self._file(source)
            return True

    def replace(self, source: Path, target: Path) -> None:
        with self._operation():
            self._folder(target)[target.name] = self._file(source)
            del self._folder(source)[source.name]

    def remove(self, path: Path) -> None:
        with self._operation():
            self._live.get(path.parent, {}).pop(path.name, None)

    def make_folder(self, path: Path) -> None:
        with self._operation():
            for each in (path, *path.parents):
                self._live.setdefault(each, {})
                self._durable.setdefault(each, {})

    def sync_folder(self, path: Path) -> None:
        with self._operation():
            self._durable[path] = dict(self._live[path])

    def exists(self, path: Path) -> bool:
        with self._operation():
            return path.name in self._live.get(path.parent, {})

    def read(self, path: Path) -> bytes:
        with self._operation():
            return self._file(path).data

    def read_range(self, path: Path, start: int, length: int) -> bytes:
        return self.read(path)[start : start + length]

    def files(self, folder: Path) -> Iterator[tuple[Path, int]]:
        with self._operation():
            found = [
                (each / name, len(file.data))
                for each, names in self._live.items()
                if each == folder or folder in each.parents
                for name, file in names.items()
            ]
        yield from found

    def _operation(self) -> AbstractContextManager[None]:
        """Around each operation."""
        return _Operation(self)

    def _folder(self, path: Path) -> dict[str, _File]:
        try:
            return self._live[path.parent]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None

    def _file(self, path: Path) -> _File:
        try:
            return self._folder(path)[path.name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None


class _Operation(AbstractContextManager[None]):
    """Counts an operation; the one that crashes happens first or does not happen, as the seed says."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk

    def __enter__(self) -> None:
        disk = self._disk
        disk._guard.acquire()
        self._ends = disk.operations == disk.crash_at
        disk.operations += 1
        if disk._crashed or (self._ends and disk._random.random() < 0.5):
            disk._crashed = True
            disk._guard.release()
            raise SimulatedCrash

    def __exit__(self, *exc: object) -> None:
        self._disk._crashed = self._disk._crashed or self._ends
        self._disk._guard.release()
        if self._ends:
            raise SimulatedCrash


class FaultyStore:
    """A store around another. ``error_rate``: how often an operation fails; half of those have worked all the same."""

    def __init__(self, store: ObjectStore, seed: int, *, crash_at: int = -1, error_rate: float = 0.0) -> None:
        self._store = store
        self._random = random.Random(seed)
        self._guard = threading.RLock()
        self._crashed = False
        self.crash_at = crash_at
        self.error_rate = error_rate
        self.operations = 0

    @property
    def uri(self) -> str:
        return self._store.uri

    def restart(self, crash_at: int = -1) -> None:
        with self._guard:
            self._crashed, self.crash_at, self.operations = False, crash_at, 0

    def put(self, name: str, parts: Iterable[Any]) -> int:
        data = b"".join(bytes(part) for part in parts)
        return int(self._do(lambda: self._store.put(name, [data])))

    def put_if_absent(self, name: str, data: Any) -> bool:
        with self._guard:
            if self._random.random() < self.error_rate / 2:
                # The first request worked, its answer was lost, the client tried again.
                self._do(lambda: self._store.put_if_absent(name, data))
            return bool(self._do(lambda: self._store.put_if_absent(name, data)))

    def get(self, name: str) -> bytes:
        return bytes(self._do(lambda: self._store.get(name)))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return bytes(self._do(lambda: self._store.get_range(name, start, length)))

    def list(self, prefix: str) -> list[StoredObject]:
        return list(self._do(lambda: self._store.list(prefix)))

    def delete(self, names: Sequence[str]) -> None:
        for name in names:  # one by one: a crash may come between two
            self._do(lambda name=name: self._store.delete([name]))

    def sweep(self, may: Callable[[], object]) -> None:
        self._do(lambda: self._store.sweep(may))

    def _do(self, operation: Any) -> Any:
        with self._guard:
            ends = self.operations == self.crash_at
            self.operations += 1
            if self._crashed or (ends and self._random.random() < 0.5):
                self._crashed = True
                raise SimulatedCrash
            fails = self._random.random() < self.error_rate
            if fails and self._random.random() < 0.5:
                raise CheckpointError(f"{self.uri}: a fault was injected; nothing was done.")
            result = operation()
            if ends:
                self._crashed = True
                raise SimulatedCrash
            if fails:
                raise CheckpointError(f"{self.uri}: a fault was injected; the operation was done.")
            return result
