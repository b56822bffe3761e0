"""Files by which a process hands arrays or rows to another one of the same machine and user: written and mapped once.

Nothing is synced: what is in such a file counts for less than an epoch, and mostly never reaches the disk. It is
private (0600) and lies in the receiver's own folder.

Who sends the same amount again and again may have the files used again: pages that the system has given once need not
be asked for anew, which costs more than writing them. A file has one owner at any time, and changes hands by its name:
``handed-`` is the sender's until the receiver knows of it, ``taken-`` the receiver's for as long as anything
looks at its bytes, ``spare-`` nobody's: the next sender renames it, and only one of several can. A name that a dead
sender left goes with ``sweep``, as do files that nobody has used for a while, or with the folder.

Threads: a ``SharedFile`` belongs to one; functions are for any.
"""

from __future__ import annotations

import mmap
import os
import re
import tempfile
import threading
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa

from tailrace.env.randomness import short_id

PREFIX = "handed-"
_TAKEN, _SPARE = "taken-", "spare-"
_NAME = re.compile(rf"({PREFIX}|{_TAKEN}|{_SPARE})([0-9]{{1,19}})-[A-Za-z0-9_]+")
_ALIGN = 8
_END_OF_STREAM = np.array([-1, 0], np.int32)

SPARE_BYTES_MAX = 256 << 20
"""Spare files together are no larger than this."""
_LOOK_EVERY = 32
_OLD = 8
"""A file that was not used for so many numbers is not needed any more."""


class SharedFile:
    """One sender's arrays, one after the other, each from a multiple of 8 bytes on. One thread."""

    def __init__(self, folder: str, number: int, *, spare: bool = False) -> None:
        """``number``: by which ``sweep`` knows whether it is still wanted.

        ``spare``: a file may be used again; then there may be more in it than is written now.
        """
        found = _spare_file(folder, number) if spare else None
        self._descriptor, self.path = found or tempfile.mkstemp(prefix=f"{PREFIX}{number}-", dir=folder)

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    def write(self, arrays: Sequence[np.ndarray]) -> None:
        for array in arrays:
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            done = 0
            while done < len(data):
                done += os.write(self._descriptor, data[done:])
            if len(data) % _ALIGN:
                os.write(self._descriptor, bytes(-len(data) % _ALIGN))

    def write_batches(self, batches: Iterable[pa.RecordBatch], bytes_max: int) -> bool:
        """Rows, as an Arrow stream, which says by itself where it ends. Whether they are no more than so many bytes."""
        size = 0
        for number, batch in enumerate(batches):
            size += batch.nbytes
            if size > bytes_max:
                return False
            if not number:
                self.write([np.frombuffer(batch.schema.serialize(), np.uint8)])
            self.write([np.frombuffer(batch.serialize(), np.uint8)])
        self.write([_END_OF_STREAM])
        return True

    def close(self) -> None:
        """End the writing; the file stays for its receiver."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def remove(self) -> None:
        """Take it back, where the receiver has not taken it yet."""
        self.close()
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass


def take(folder: str, name: str, *, spare: bool = False) -> mmap.mmap:
    """The file's bytes, mapped; nobody else can take it afterwards.

    ``spare``: once nothing looks at the bytes any more, the file may be used again.
    """
    if not name.startswith(PREFIX) or _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not the name of a file that was handed over")
    path = os.path.join(folder, name)
    if spare:
        kept = os.path.join(folder, _TAKEN + name[len(PREFIX) :])
        os.rename(path, kept)
        path = kept
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        if not spare:
            os.unlink(path)
        mapped = mmap.mmap(descriptor, 0)
    finally:
        os.close(descriptor)
    if spare:
        weakref.finalize(mapped, _let_go, folder, os.path.basename(path)).atexit = False
    return mapped


def _spare_file(folder: str, number: int) -> tuple[int, str] | None:
    """A file that nobody uses, under a name for this number; None where there is none."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(_SPARE):
                continue
            mine = os.path.join(folder, f"{PREFIX}{number}-{short_id()}")
            try:
                os.rename(entry.path, mine)
            except FileNotFoundError:
                continue  # another sender was quicker
            return os.open(mine, os.O_WRONLY | os.O_NOFOLLOW), mine
    return None


class _Spares:
    """How much the spare files of folders take, about: looked at once for many files that are let go.

    In between only what is added is counted, and not what senders take: so it is never less than there is.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # the collector may let go of a file in the middle of this
        self._known: dict[str, tuple[int, int]] = {}  # by folder: bytes, and how often it may be asked until a look

    def fits(self, folder: str, size: int) -> bool:
        """Whether a file of so many bytes may be spare. If so, it is counted."""
        with self._lock:
            total, left = self._known.get(folder, (0, 0))
            if not left or total + size > SPARE_BYTES_MAX:
                with os.scandir(folder) as entries:
                    total = sum(entry.stat().st_size for entry in entries if entry.name.startswith(_SPARE))
                left = _LOOK_EVERY
            fits = total + size <= SPARE_BYTES_MAX
            self._known[folder] = (total + size if fits else total, left - 1)
            return fits


_spares = _Spares()


def _let_go(folder: str, name: str) -> None:
    """Nothing looks at the bytes of a taken file any more."""
    path = os.path.join(folder, name)
    with suppress(OSError):  # the folder may be gone
        if _spares.fits(folder, os.stat(path).st_size):
            os.rename(path, os.path.join(folder, _SPARE + name[len(_TAKEN) :]))
            return
    with suppress(OSError):
        os.unlink(path)


def places(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Where arrays of these sizes in bytes lie in a file, as (from, to)."""
    out, at = [], 0
    for size in sizes:
        out.append((at, at + size))
        at += size + -size % _ALIGN
    return out


def sweep(folder: str, up_to: int) -> None:
    """Remove what was handed over for numbers up to this one and never taken, and other files of long ago."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries]
    ours = [found for name in names if (found := _NAME.fullmatch(name))]
    left = [found[0] for found in ours if found[1] == PREFIX and int(found[2]) <= up_to]
    # Of a taken file only the name goes: whoever still looks at its bytes may, and dead receivers have left theirs.
    left += [found[0] for found in ours if found[1] != PREFIX and int(found[2]) <= up_to - _OLD]
    for name in left:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, name))
