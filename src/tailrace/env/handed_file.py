"""Files by which a process hands arrays or rows to another one of the same machine and user: written and mapped once.

Nothing is synced: such a file lives for less than an epoch, and mostly never reaches the disk. It is private (0600) and
lies in the receiver's own folder. The receiver removes its name as soon as it is mapped; a name that a dead sender left
goes with ``sweep``, or with the folder.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

PREFIX = "handed-"
_ALIGN = 8


class HandedFile:
    """One sender's arrays, one after the other, each from a multiple of 8 bytes on. One thread."""

    def __init__(self, folder: str, number: int) -> None:
        """``number``: by which ``sweep`` knows whether it is still wanted."""
        self._descriptor, self.path = tempfile.mkstemp(prefix=f"{PREFIX}{number}-", dir=folder)

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

    def write_batches(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Rows, as an Arrow stream; there is nothing else in the file then."""
        with pa.OSFile(self.path, "wb") as sink, pa.ipc.new_stream(sink, batches[0].schema) as stream:
            for batch in batches:
                stream.write_batch(batch)

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


def take(folder: str, name: str) -> mmap.mmap:
    """The file's bytes, mapped; its name is gone afterwards."""
    if not name.startswith(PREFIX) or os.path.basename(name) != name:
        raise ValueError(f"{name!r} is not the name of a file that was handed over")
    path = os.path.join(folder, name)
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        os.unlink(path)
        return mmap.mmap(descriptor, 0)
    finally:
        os.close(descriptor)


def places(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Where arrays of these sizes in bytes lie in a file, as (from, to)."""
    out, at = [], 0
    for size in sizes:
        out.append((at, at + size))
        at += size + -size % _ALIGN
    return out


def sweep(folder: str, up_to: int) -> None:
    """Remove what was handed over for numbers up to this one and never taken."""
    with os.scandir(folder) as entries:
        left = [entry.path for entry in entries if entry.name.startswith(PREFIX) and _number(entry.name) <= up_to]
    for path in left:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass


def _number(name: str) -> int:
    return int(name[len(PREFIX) :].split("-")[0])
