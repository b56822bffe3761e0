"""Objects as files below a folder.

An object is written under ``.tmp/``, synced, then given its name by ``link`` (put if absent) or ``rename`` (put), and
the folder is synced: the rules of ``env.files.disk``. ``link`` fails where the name exists, which makes it the
put-if-absent of a disk; unlike ``O_EXCL`` it publishes a file that is already whole.

Safe from any thread and from several processes on one folder.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tailrace.env.files.disk import Disk, process_id
from tailrace.env.randomness import short_id
from tailrace.env.stores.object_store import StoredObject, check_name, check_prefix
from tailrace.errors import CheckpointError

TEMPORARY = ".tmp"
_TRIES = 3
"""So often a put is made whose temporary file somebody takes away."""


class LocalStore:
    def __init__(self, root: Path | str, disk: Disk | None = None) -> None:
        self.root = Path(root)
        self._disk = disk if disk is not None else Disk()
        self._known_folders: set[Path] = set()

    @property
    def uri(self) -> str:
        return str(self.root)

    def make_root(self) -> None:
        """Create the folder, where missing. Not done before it is needed: a store that is only read leaves no trace."""
        with self._explained("create"):
            self._disk.make_folder(self.root)

    def put(self, name: str, parts: Iterable[Any]) -> int:
        target = self._prepare(name)
        with self._explained("write", name):
            with self._written(parts) as (temporary, size):
                self._disk.replace(temporary, target)
            self._disk.sync_folder(target.parent)
            return size

    def put_if_absent(self, name: str, data: Any) -> bool:
        target = self._prepare(name)
        with self._explained("write", name):
            won = self._linked(data, target)
            # Also for the loser: what it now reads under this name must not vanish in a crash of the machine.
            self._disk.sync_folder(target.parent)
            return won

    def get(self, name: str) -> bytes:
        with self._explained("read", name):
            return self._disk.read(self.root / check_name(name))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        with self._explained("read", name):
            return self._disk.read_range(self.root / check_name(name), start, length)

    def has(self, name: str) -> bool:
        return self._disk.exists(self.root / check_name(name))

    def list(self, prefix: str) -> list[StoredObject]:
        folder = self.root / check_prefix(prefix)
        hidden = self.root / TEMPORARY
        with self._explained("list", prefix):
            found = [
                (path, size)
                for path, size in self._disk.files(folder)
                if path.parent != hidden and path != self.root / "lock"
            ]
            # Who lists goes by what it finds, and may delete what that makes superfluous. But its writer may have been
            # killed, or stand still, between giving it its name and syncing that.
            for each in sorted({path.parent for path, _ in found}):
                with contextlib.suppress(FileNotFoundError):
                    self._disk.sync_folder(each)
        objects = (StoredObject(path.relative_to(self.root).as_posix(), size) for path, size in found)
        return sorted(objects, key=lambda each: each.name)

    def delete(self, names: Sequence[str]) -> None:
        # Not synced: a file that a crash brings back is unreferenced, and the next start deletes it again.
        for name in names:
            with self._explained("delete", name):
                self._disk.remove(self.root / check_name(name))

    def sweep(self, may: Callable[[], object]) -> None:
        with self._explained("list", TEMPORARY):
            left = [path for path, _ in self._disk.files(self.root / TEMPORARY)]
        may()
        with self._explained("clean", TEMPORARY):
            for path in left:
                self._disk.remove(path)

    def _prepare(self, name: str) -> Path:
        target = self.root / check_name(name)
        if target.parent not in self._known_folders:
            with self._explained("create", name):
                self._disk.make_folder(self.root / TEMPORARY)
                self._disk.make_folder(target.parent)
            self._known_folders.add(target.parent)
        return target

    def _linked(self, data: Any, target: Path) -> bool:
        """Whether the name was free.

        A run that puts its fence has none yet. So another one, which starts on another machine at the same time, may
        take the temporary file for what a killed one has left.
        """
        for _ in range(_TRIES - 1):
            with contextlib.suppress(FileNotFoundError), self._written([data]) as (temporary, _):
                return self._disk.link(temporary, target)
        with self._written([data]) as (temporary, _):
            return self._disk.link(temporary, target)

    @contextmanager
    def _written(self, parts: Iterable[Any]) -> Iterator[tuple[Path, int]]:
        temporary = self.root / TEMPORARY / f"{process_id()}-{short_id()}{short_id()}"
        try:
            yield temporary, self._disk.write_synced(temporary, parts)
        finally:
            self._disk.remove(temporary)

    @contextmanager
    def _explained(self, verb: str, name: str = "") -> Iterator[None]:
        """Turn what the system says into where it happened and what to do."""
        try:
            yield
        except FileNotFoundError as error:
            if verb == "read":
                raise FileNotFoundError(errno.ENOENT, "no such object", str(self.root / name)) from None
            raise CheckpointError(
                f"Cannot {verb} {self.root / name}: a folder on the way has been removed ({error}). "
                "Something else deletes below the state location; give the query a location of its own."
            ) from error
        except PermissionError as error:
            raise CheckpointError(
                f"Cannot {verb} {self.root / name}: permission denied. "
                "Make the state location writable for this user, or choose another with the option stateLocation."
            ) from error
        except OSError as error:
            raise CheckpointError(
                f"Cannot {verb} {self.root / name}: {error.strerror or error}. {_advice(error)}"
            ) from error


def _advice(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Free some space there, then start the query again: it continues from the last durable epoch."
    if error.errno == errno.EOPNOTSUPP:
        return "It cannot hold a commit log; choose another place with the option stateLocation."
    if error.errno == errno.EROFS:
        return "The file system is read-only; choose another place with the option stateLocation."
    if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
        return "A file stands where a folder is needed; choose another place with the option stateLocation."
    return "Look after that disk, then start the query again: it continues from the last durable epoch."
