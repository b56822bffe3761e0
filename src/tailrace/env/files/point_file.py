"""Reading many small parts of a file at once: through the system's page cache, or around it.

Not by mapping: a page that is not mapped yet may cost several times what a call for it does, and must be let go again.
Who knows what lies in the file calls ``pread`` from a loop of his own, while he is ``reading``. Around the page cache
only whole blocks can be read: every block of ``BLOCK`` bytes that some part needs is read once, into a buffer in which
the blocks of one part lie one after the other (``gather``). Loops are compiled, and run without the interpreter lock.

Threads: any number at once. Who closes a file need not wait for readers: its descriptor goes with the last of them, so
that none reads another file which has got the same number meanwhile.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tailrace.env.kernels.compile import kernel

BLOCK = 4096


@intrinsic
def _pread(typing_context: Any, descriptor: Any, out: Any, at: Any, size: Any, offset: Any) -> Any:
    """The system's call of that name, to byte ``at`` of an array. Nothing is checked."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        fd, array, place, count, start = arguments
        data = context.make_array(signature.args[1])(context, builder, array).data
        word, pointer = ir.IntType(64), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(word, [ir.IntType(32), pointer, word, word])
        function = builder.module.globals.get("pread") or ir.Function(builder.module, kind, "pread")
        target = builder.bitcast(builder.gep(data, [place]), pointer)
        return builder.call(function, [builder.trunc(fd, ir.IntType(32)), target, count, start])

    return types.int64(types.int64, out, types.int64, types.int64, types.int64), code


pread: Any = _pread  # called from compiled code, where it takes one argument less than its definition shows


@kernel
def _read_blocks(descriptor: int, blocks: np.ndarray, out: np.ndarray) -> int:
    """Blocks, ascending, to the array one after the other; neighbours with one call. How many bytes came, -1: none."""
    at, total = 0, 0
    while at < len(blocks):
        end = at + 1
        while end < len(blocks) and blocks[end] == blocks[end - 1] + 1:
            end += 1
        came = pread(descriptor, out, at * BLOCK, (end - at) * BLOCK, blocks[at] * BLOCK)
        if came < 0:
            return -1
        total += came
        at = end
    return total


class PointFile:
    """A file that is open already. ``direct``: around the page cache; refused where its file system cannot do that."""

    def __init__(self, descriptor: int, folder: str, *, direct: bool) -> None:
        flags = os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if direct else 0)
        try:
            self._descriptor = os.open(f"/proc/self/fd/{descriptor}", flags)
        except OSError as error:
            if direct and error.errno == errno.EINVAL:
                raise OSError(
                    errno.EINVAL, f"the file system of {folder} cannot be read directly: use spillReads=mapped", folder
                ) from error
            raise
        self._guard = threading.Lock()
        self._readers = 0
        self._closed = False

    def gather(self, starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A buffer, and where in it each part begins. Bytes beyond the file's end are undefined."""
        first = starts // BLOCK
        counts = (starts + np.maximum(lengths, 1) - 1) // BLOCK - first + 1
        ends = np.cumsum(counts)
        every = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(first - (ends - counts), counts)
        blocks = np.unique(every)
        room = np.empty((len(blocks) + 1) * BLOCK, np.uint8)
        skip = -room.ctypes.data % BLOCK  # what is read directly must lie at a block's edge
        buffer = room[skip : skip + len(blocks) * BLOCK]
        with reading([self]) as descriptors:
            if len(blocks) and _read_blocks(descriptors[0], blocks, buffer) < 0:
                raise OSError(errno.EIO, "a scratch file cannot be read any more: check that disk")
        return buffer, np.searchsorted(blocks, first) * BLOCK + starts % BLOCK

    def close(self) -> None:
        """Idempotent."""
        with self._guard:
            self._closed = True
            self._close_unread()

    def begin(self) -> int:
        """The descriptor, which stays open until ``end``."""
        with self._guard:
            if self._closed:
                raise OSError(errno.EBADF, "a scratch file was closed before it was read")
            self._readers += 1
            return self._descriptor

    def end(self) -> None:
        with self._guard:
            self._readers -= 1
            self._close_unread()

    def _close_unread(self) -> None:
        if self._closed and not self._readers and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@contextmanager
def reading(files: Sequence[PointFile]) -> Iterator[np.ndarray]:
    """The descriptors of these files, which stay open meanwhile."""
    descriptors = np.empty(len(files), np.int64)
    begun: list[PointFile] = []
    try:
        for number, file in enumerate(files):
            descriptors[number] = file.begin()
            begun.append(file)
        yield descriptors
    finally:
        for file in begun:
            file.end()


def warm_up_point_file() -> None:
    """Compile the loop: on no blocks, so that no file is needed."""
    _read_blocks(-1, np.empty(0, np.int64), np.empty(0, np.uint8))
