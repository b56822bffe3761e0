"""Short-lived files of this machine: private folders, locks between processes, spilled rows, bounded logs.

Nothing here is durable and nothing is synced: what lies in a scratch folder means nothing after its process has ended.
A folder is private (mode 0700, owned by us, not a link), because it holds a socket that hands out state.
``ProcessLock`` is held by an open file description: it ends with its process however that dies, and it also tells
processes of other containers apart, which pids would not.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from tailrace.env.files.point_file import PointFile

_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""Of Arrow IPC."""

SOCKET_PATH_MAX = 100
"""Longest path of a Unix socket that every system takes (Linux 107, macOS 103)."""


def private_base(room: int, temporary: str | None = None) -> str:
    """The user's folder for scratch folders; made where missing. ``room``: how many characters will be appended."""
    name = f"tailrace-{os.getuid()}"
    for parent in (temporary or tempfile.gettempdir(), "/tmp"):
        base = os.path.join(parent, name)
        if len(base) + room <= SOCKET_PATH_MAX and os.access(parent, os.W_OK):
            make_private(base)
            return base
    raise OSError(errno.ENAMETOOLONG, f"no temporary folder with a path short enough for a socket; set TMPDIR: {base}")


def make_private(path: str) -> None:
    """Make a folder that only this user can enter; refuse one that somebody else has prepared."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(errno.EPERM, "not a folder that only this user can enter; remove it", path)


def remove_tree(path: str) -> None:
    """Remove a folder and all in it; nothing happens where there is none.

    It loses its name first: a thread that still makes files by that name (a server's, which warms up while it has to
    end) finds no folder any more, and cannot keep one from being removed that is not empty once more.
    """
    gone = f"{path}.gone.{os.getpid()}"
    try:
        os.rename(path, gone)
    except OSError:  # there is none, or it is no folder of ours to rename
        gone = path
    shutil.rmtree(gone, ignore_errors=True)


_temporary_in: str | None = None


def temporary_in(path: str | None) -> None:
    """From now on this process's temporary folders lie in this one: if it is killed, they go with that."""
    global _temporary_in
    _temporary_in = path


@contextmanager
def temporary_folder() -> Iterator[str]:
    """A private folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="tailrace-", dir=_temporary_in) as path:
        yield path


def folders(path: str) -> list[str]:
    return sorted(entry.name for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False))


def file_bytes(path: str) -> int | None:
    """Size of a file, or None where it is missing."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None


def changed_at(path: str) -> int:
    """When something was last made or removed in a folder, for comparing; 0 where it is missing."""
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0


def write_whole(path: str, text: str) -> None:
    """Write a file that readers see whole or not at all."""
    part = f"{path}.{os.getpid()}.part"
    with open(part, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(part, path)


def read_whole(path: str) -> str | None:
    """A file's text, or None where it is missing."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def read_binary(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def remove_file(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def read_tail(path: str, bytes_max: int) -> str:
    """The last whole lines of a file, empty where it is missing."""
    try:
        with open(path, "rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - bytes_max)
            file.seek(start)
            data = file.read()
    except OSError:
        return ""
    if start:
        data = data[data.find(b"\n") + 1 :]
    return data.decode(errors="replace")


def open_log(path: str) -> BinaryIO:
    """A file that appends: several writers do not overwrite each other, and ``trim_log`` may cut it."""
    return open(path, "ab", buffering=0, opener=_private)


def trim_log(path: str, bytes_max: int, bytes_kept: int) -> None:
    """Cut a log that has grown past its bound down to its last lines. Lines written meanwhile may be lost."""
    if (file_bytes(path) or 0) <= bytes_max:
        return
    kept = read_tail(path, bytes_kept).encode()
    os.truncate(path, 0)
    with open_log(path) as file:
        file.write(kept)


def leave_stdin() -> None:
    """Hold no end of a starter's pipe: stdin becomes empty."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


@contextmanager
def private_files() -> Iterator[None]:
    """What is made inside, a socket too, is for this user alone. Counts for every thread: call it before others run."""
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class ProcessLock:
    """An exclusive lock on a file, for as long as this object and its process live."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def take(cls, path: str, timeout_s: float) -> ProcessLock | None:
        """The lock, or None where another holds it for longer than the timeout."""
        deadline = time.monotonic() + timeout_s
        while True:
            taken = cls._try(path)
            if taken is not None or time.monotonic() >= deadline:
                return taken
            time.sleep(0.01)

    @classmethod
    def _try(cls, path: str) -> ProcessLock | None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Somebody may have removed the file between open and lock: then we hold a lock that nobody else sees.
            here = os.stat(path)
            mine = os.fstat(descriptor)
            if (here.st_ino, here.st_dev) == (mine.st_ino, mine.st_dev):
                return cls(path, descriptor)
        except (BlockingIOError, FileNotFoundError):
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> ProcessLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class SpilledBatches:
    """Record batches of one schema on disk, as Arrow IPC: written once in order, then read back, all of them or any.

    The file has no name, so that it is gone when its process ends, however that happens, or when nobody holds this
    object any more. One thread writes; ``batches`` ends the writing. A batch stays readable after ``close``.
    """

    def __init__(self, folder: str | None, schema: pa.Schema) -> None:
        """``folder``: None for this process's temporary one."""
        self._file = tempfile.TemporaryFile(dir=folder or _temporary_in, buffering=0)  # noqa: SIM115 - closed below
        self._schema = schema
        self._places: list[tuple[int, int]] = []
        self._end = 0
        self._ended = False
        self._append(schema.serialize())

    def write(self, batch: pa.RecordBatch) -> None:
        """Where the disk is full, this batch was not written, and all others are there."""
        assert not self._ended, "written after it was read"
        start = self._end
        self._append(batch.serialize())
        self._places.append((start, self._end - start))

    def batches(self) -> Sequence[pa.RecordBatch]:
        """All of them, mapped: their pages are in memory as long as somebody looks at them."""
        if not self._ended:
            self._append(_END_OF_STREAM)
            self._ended = True
        mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        with pa.ipc.open_stream(pa.py_buffer(mapped)) as reader:
            return list(reader)

    def batch(self, number: int) -> pa.RecordBatch:
        """One of them, as a copy that is the caller's. Any thread, once it is written."""
        start, size = self._places[number]
        data = os.pread(self._file.fileno(), size, start)
        return pa.ipc.read_record_batch(pa.py_buffer(data), self._schema)

    def close(self) -> None:
        self._file.close()

    def _append(self, data: Any) -> None:
        view, done = memoryview(data).cast("B"), 0
        while done < len(view):
            done += os.pwrite(self._file.fileno(), view[done:], self._end + done)
        self._end += done


class ScratchFile:
    """Arrays on disk, written piece by piece and then mapped. No name: gone with its process, however that ends.

    One thread writes. Mapped arrays stay readable after ``close``: they hold on to their mapping, and the disk space is
    free once the last of them is gone. They are not to be written to, but numpy holds them for writable, so that
    kernels need not be compiled a second time for read-only arrays.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._file: BinaryIO | None = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - closed below
        self._mapping: mmap.mmap | None = None
        self._bytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes written; holes between them take no room."""
        return self._bytes

    def write(self, array: np.ndarray, offset: int) -> None:
        """The array's bytes from ``offset`` on, where nothing was written yet.

        A full disk raises here, and never later where the file is mapped.
        """
        assert self._file is not None, "written after it was sealed"
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        done = 0
        while done < len(data):
            done += os.pwrite(self._file.fileno(), data[done:], offset + done)
        self._bytes += len(data)

    def mapped(self, dtype: type, offset: int, count: int) -> np.ndarray:
        """``count`` items from byte ``offset`` on, in a mapping of their own (a descriptor more while it lives)."""
        if count == 0:
            return np.empty(0, dtype)
        assert self._file is not None, "sealed: its arrays were handed out"
        mapping = mmap.mmap(self._file.fileno(), offset + count * np.dtype(dtype).itemsize)
        return np.frombuffer(mapping, dtype, count, offset)

    def points(self, *, direct: bool) -> PointFile:
        """What was written, to be read in small parts. Before ``sealed``; the caller closes it."""
        assert self._file is not None, "sealed already"
        return PointFile(self._file.fileno(), self._folder, direct=direct)

    def sealed(self, *arrays: tuple[type, int, int]) -> list[np.ndarray]:
        """Several arrays (type, byte offset, items) in one mapping with one descriptor. Ends the writing."""
        assert self._file is not None, "sealed already"
        if self._bytes:
            self._mapping = mmap.mmap(self._file.fileno(), 0)
        self._file.close()
        self._file = None
        return [
            np.frombuffer(self._mapping, dtype, count, offset) if count and self._mapping else np.empty(0, dtype)
            for dtype, offset, count in arrays
        ]

    def release(self) -> None:
        """What was read of sealed arrays need not stay in this process's memory. Safe while others read."""
        mapping = self._mapping
        if mapping is not None:
            mapping.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = self._mapping = None
        self._bytes = 0
