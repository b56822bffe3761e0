"""Files and folders that must outlive a crash, and locks (what may be lost is in ``env.files.scratch``).

Rules of syncing, on which every promise of durability rests:

- A file's bytes are safe after ``fsync`` of the file; its *name* is safe after ``fsync`` of the folder that holds it.
- So a file is published by: write under a temporary name, sync the file, link or rename to the final name, sync the
  folder. A crash at any point leaves either no file under the final name or a whole one.
- A new folder's name is safe after a sync of its parent.

``Disk`` is the list of primitives that ``LocalStore`` is built from; tests have one that does the same
in memory and forgets what was not synced. ``Disk`` is stateless: safe from any thread.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pwd
import shutil
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

IOV_MAX = 512
"""Parts handed to one ``writev``; the system's own limit is 1024."""


class Disk:
    """The file primitives. A failure is an ``OSError``; who calls says what it means."""

    def write_synced(self, path: Path, parts: Iterable[Any]) -> int:
        """Create ``path``, which must not exist, with the parts' bytes, and sync it. Returns the bytes written.

        The parts may come from a generator; at most ``IOV_MAX`` of them are held.
        """
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            total = 0
            pending: list[memoryview] = []
            pending_bytes = 0
            for part in parts:
                view = memoryview(part).cast("B")
                if not view.nbytes:
                    continue
                pending.append(view)
                pending_bytes += view.nbytes
                # Large parts go out at once, so that a generator of large parts is held one part at a time.
                if len(pending) >= IOV_MAX or pending_bytes >= 1 << 20:
                    total += _write_all(fd, pending)
                    pending, pending_bytes = [], 0
            total += _write_all(fd, pending)
            os.fsync(fd)
            return total
        finally:
            os.close(fd)

    def link(self, source: Path, target: Path) -> bool:
        """Give the file a second name. False, and nothing done, where that name is taken."""
        try:
            os.link(source, target)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in (errno.EPERM, errno.ENOSYS):
                raise OSError(errno.EOPNOTSUPP, "the file system cannot link files", str(target)) from error
            raise
        return True

    def replace(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file. One that is already gone is fine."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_folder(self, path: Path) -> None:
        """Remove a folder with all that is in it. One that is already gone is fine."""
        # What others remove meanwhile ends this early: what is then left, a later call removes.
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def make_folder(self, path: Path) -> None:
        """Create a folder and the parents it lacks, synced.

        One that is there may have a maker that was killed before it synced the name: so that is synced too.
        """
        if path.is_dir():
            with contextlib.suppress(PermissionError):  # a folder that is not ours to read is not ours to make either
                self.sync_folder(path.parent)
            return
        if path.parent != path:
            self.make_folder(path.parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        self.sync_folder(path.parent)

    def sync_folder(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync(self, path: Path) -> None:
        """Of a file that others have written."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def exists(self, path: Path) -> bool:
        return path.exists()

    def read(self, path: Path) -> bytes:
        with open(path, "rb", buffering=0) as file:
            return file.readall()

    def read_range(self, path: Path, start: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``start``: fewer where the file ends before."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            first = os.pread(fd, length, start)
            if len(first) in (0, length):
                return first
            parts, at = [first], len(first)
            while at < length and (part := os.pread(fd, length - at, start + at)):
                parts.append(part)
                at += len(part)
            return b"".join(parts)
        finally:
            os.close(fd)

    def files(self, folder: Path) -> Iterator[tuple[Path, int]]:
        """Every file below ``folder`` with its size; nothing where there is no such folder."""
        try:
            entries = list(os.scandir(folder))
        except FileNotFoundError:
            return
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from self.files(Path(entry.path))
                continue
            try:
                size = entry.stat().st_size
            except FileNotFoundError:  # removed since the folder was read
                continue
            yield Path(entry.path), size

    def folders(self, folder: Path) -> list[str]:
        """The names of the folders right below ``folder``; none where there is no such folder."""
        try:
            return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []


def _write_all(fd: int, views: list[memoryview]) -> int:
    total = 0
    while views:
        written = os.writev(fd, views)
        total += written
        done = 0
        while done < len(views) and written >= views[done].nbytes:
            written -= views[done].nbytes
            done += 1
        views = views[done:]
        if written:
            views[0] = views[0][written:]
    return total


class FileLock:
    """An exclusive lock on a file, by ``flock``: the system releases it when the process ends, however it ends.

    The file stays when the lock is released, unless it is ``temporary``: then its holder removes it. Who gets the lock
    of a file that was removed meanwhile sees that its name is another file's, or nobody's, and tries again: else two
    holders could lock two files of one name.
    """

    def __init__(self, path: Path, temporary: bool = False) -> None:
        self.path = path
        self._temporary = temporary
        self._fd: int | None = None

    def acquire(self, note: bytes) -> bytes | None:
        """Take the lock and leave ``note`` in the file. Returns ``None``, or the holder's note where it is taken."""
        while True:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            taken = self._take(fd, note)
            if taken is not None or self._fd is not None:
                return taken

    def _take(self, fd: int, note: bytes) -> bytes | None:
        """The holder's note where it is taken. Else it is ours, unless the file was removed meanwhile."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            try:
                return os.pread(fd, 1 << 16, 0)
            finally:
                os.close(fd)
        except BaseException:
            os.close(fd)
            raise
        if not self._named(fd):
            os.close(fd)
            return None
        os.ftruncate(fd, 0)
        os.pwrite(fd, note, 0)
        self._fd = fd
        return None

    def release(self) -> None:
        fd, self._fd = self._fd, None
        if fd is None:
            return
        with contextlib.suppress(OSError):  # the note is a courtesy: the lock goes with the descriptor
            os.ftruncate(fd, 0)
            if self._temporary:
                os.unlink(self.path)
        os.close(fd)

    def _named(self, fd: int) -> bool:
        """Whether the name still is this file's."""
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self.path))
        except FileNotFoundError:
            return False


def process_id() -> int:
    return os.getpid()


def host_name() -> str:
    return socket.gethostname()


def user_name() -> str:
    """Who runs this process, or the number where it has no name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"


def is_this_machine(host: str) -> bool:
    """Whether a host's name is surely this machine's. Others may be, under names that it does not know."""
    return host in ("localhost", "127.0.0.1", host_name())
