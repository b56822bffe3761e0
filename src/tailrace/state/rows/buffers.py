"""Arrow buffers as numpy arrays of one kind: kernels are compiled once for each kind of array they are given.

numpy marks an array over a foreign buffer read-only, and one off a socket may be unaligned; each would make numba
compile every kernel again. So views made here claim to be writable. Nobody writes to them: Arrow data is immutable.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


class _Memory:
    """Keeps a buffer alive for the array over it."""

    def __init__(self, buffer: pa.Buffer, offset: int, count: int, dtype: np.dtype[Any]) -> None:
        self._buffer = buffer
        self.__array_interface__ = {
            "version": 3,
            "shape": (count,),
            "typestr": dtype.str,
            "data": (buffer.address + offset, False),
        }


def view(buffer: pa.Buffer | None, dtype: type, count: int, offset_items: int = 0) -> np.ndarray:
    """``count`` items from ``offset_items`` on; zeros where there is no buffer. Copied only where unaligned."""
    kind = np.dtype(dtype)
    if buffer is None or count == 0:
        return np.zeros(count, kind)
    offset = offset_items * kind.itemsize
    if offset + count * kind.itemsize > buffer.size:
        raise ValueError(f"{count} items of {kind} from {offset_items} do not lie in a buffer of {buffer.size} bytes")
    if (buffer.address + offset) % kind.itemsize:
        buffer, offset = pa.py_buffer(buffer.slice(offset, count * kind.itemsize).to_pybytes()), 0
        if buffer.address % kind.itemsize:
            return np.frombuffer(buffer, kind, count).copy()
    return np.asarray(_Memory(buffer, offset, count, kind))
