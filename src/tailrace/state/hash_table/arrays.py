"""The arrays of a table: how large they are, how they lie in memory, how they grow.

Threads: pure functions.
"""

from __future__ import annotations

import numpy as np

from tailrace.state.hash_table import kernels as tk


def index_slots(rows: int) -> int:
    """A power of two, so that a hash finds its slot by a mask; at most half full."""
    return 1 << (2 * rows - 1).bit_length()


def record_matrix(rows: int, words: int) -> np.ndarray:
    """Starts at a cache line, so that a record of eight words lies in one."""
    raw = np.empty(rows * words + 8, np.int64)
    skip = -raw.ctypes.data % 64 // 8
    return raw[skip : skip + rows * words].reshape(rows, words)


def empty_panes(slots: int) -> np.ndarray:
    panes = np.zeros((slots, tk.PANE_WORDS), np.int64)
    panes[:, tk.PANE_HEAD] = tk.EMPTY_PANE
    return panes


def grown(array: np.ndarray, length: int) -> np.ndarray:
    """A longer copy; what is new holds anything."""
    new = np.empty((length, *array.shape[1:]), array.dtype)
    new[: len(array)] = array
    return new
