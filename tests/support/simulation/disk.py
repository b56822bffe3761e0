"""A machine's disk, each of whose operations is a point; what was not synced is lost with the power.

The same rules as ``support.stores.faulty.SimulatedDisk``, by names that are plain text: a simulation
does little else.
After a loss of power each name that was not synced is there or not, as the seed says, one by one: a disk may have
written them in any order. A file that was not synced has a part of its bytes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from support.simulation.scheduler import Scheduler
from tailrace.env.files.disk import Disk


class File:
    def __init__(self, data: bytes, synced: bool) -> None:
        self.data = data
        self.synced = synced


class SimDisk(Disk):
    """``changed`` gets the path of each file that appears, changes or goes. ``refuse`` raises where a name may not

    be changed by the process that would.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        changed: Callable[[str, str], None] = lambda *_: None,
        refuse: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._scheduler = scheduler
        self._changed = changed
        self._refuse = refuse
        self._live: dict[str, dict[str, File]] = {}
        self._durable: dict[str, dict[str, File]] = {}

    # No operations of the simulation ---------------------------------------------------------------------------------

    def names(self, folder: str) -> Iterable[str]:
        """As a process would find them now."""
        return self._live.get(folder, {}).keys()

    def names_below(self, top: str) -> list[str]:
        """Of files in all folders below it, relative to it."""
        return [
            f"{folder}/{name}"[len(top) + 1 :]
            for folder, names in self._live.items()
            if folder == top or folder.startswith(f"{top}/")
            for name in names
        ]

    def data(self, folder: str, name: str) -> bytes | None:
        file = self._live.get(folder, {}).get(name)
        return None if file is None else file.data

    def put_durably(self, folder: str, name: str, data: bytes | None) -> None:
        """Of others, who are not under test: a file, or none, at once and for ever."""
        self._refuse(folder)
        for folders in (self._live, self._durable):
            names = folders.setdefault(folder, {})
            names.pop(name, None)
            if data is not None:
                names[name] = File(data, synced=True)
        self._changed(folder, name)

    def put_unsynced(self, folder: str, name: str, data: bytes | None) -> None:
        """Of others, who do not sync: a file, or none, which a loss of power may take back."""
        self._refuse(folder)
        self._durable.setdefault(folder, {})
        names = self._live.setdefault(folder, {})
        names.pop(name, None)
        if data is not None:
            names[name] = File(data, synced=False)
        self._changed(folder, name)

    def lose_power(self) -> None:
        draw = self._scheduler.random
        for folder, live in self._live.items():
            durable = self._durable[folder]
            kept: dict[str, File] = {}
            for name in sorted({*live, *durable}):
                now, before = live.get(name), durable.get(name)
                chosen = now if now is before or draw.random() < 0.5 else before
                if chosen is not None:
                    kept[name] = chosen
                    if not chosen.synced:
                        chosen.data = chosen.data[: draw.randint(0, len(chosen.data))]
                        chosen.synced = True
            self._live[folder], self._durable[folder] = kept, dict(kept)

    # Operations ------------------------------------------------------------------------------------------------------

    def write_synced(self, path: Path, parts: Iterable[Any]) -> int:
        data = b"".join(bytes(part) for part in parts)
        folder, name = os.path.split(path)
        self._scheduler.point("write")
        names = self._folder(folder)
        if name in names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        file = names[name] = File(data, synced=False)
        self._scheduler.point("sync")
        self.sync_file(file)
        return len(data)

    def sync_file(self, file: File) -> None:
        file.synced = True

    def link(self, source: Path, target: Path) -> bool:
        folder, name = os.path.split(target)
        self._scheduler.point(f"link {name}")
        names = self._folder(folder)
        if name in names:
            return False
        names[name] = self._file(source)
        self._changed(folder, name)
        return True

    def replace(self, source: Path, target: Path) -> None:
        folder, name = os.path.split(target)
        self._scheduler.point(f"rename to {name}")
        self._refuse(folder)
        self._folder(folder)[name] = self._file(source)
        source_folder, source_name = os.path.split(source)
        del self._live[source_folder][source_name]
        self._changed(source_folder, source_name)
        self._changed(folder, name)

    def remove(self, path: Path) -> None:
        folder, name = os.path.split(path)
        hidden = folder.endswith(".tmp")
        self._scheduler.point("remove" if hidden else f"remove {name}")
        if self._live.get(folder, {}).pop(name, None) is not None and not hidden:
            self._changed(folder, name)

    def make_folder(self, path: Path) -> None:
        for each in (path, *path.parents):
            self._live.setdefault(str(each), {})
            self._durable.setdefault(str(each), {})

    def sync_folder(self, path: Path) -> None:
        folder = str(path)
        self._scheduler.point(f"sync {folder}")
        if folder not in self._live:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)
        self._durable[folder] = dict(self._live[folder])

    def exists(self, path: Path) -> bool:
        folder, name = os.path.split(path)
        self._scheduler.point(f"look for {name}")
        return name in self._live.get(folder, {})

    def read(self, path: Path) -> bytes:
        self._scheduler.point("read")
        return self._file(path).data

    def read_range(self, path: Path, start: int, length: int) -> bytes:
        return self.read(path)[start : start + length]

    def files(self, folder: Path) -> Iterator[tuple[Path, int]]:
        top = str(folder)
        self._scheduler.point(f"list {top}")
        found = [
            (Path(each, name), len(file.data))
            for each, names in self._live.items()
            if each == top or each.startswith(f"{top}/")
            for name, file in names.items()
        ]
        yield from found

    def _folder(self, folder: str) -> dict[str, File]:
        try:
            return self._live[folder]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder) from None

    def _file(self, path: Path) -> File:
        folder, name = os.path.split(path)
        try:
            return self._live[folder][name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
