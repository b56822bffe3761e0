"""Makes Spark's Python workers cheap to reuse for many small tasks.

After every task PySpark's daemon runs a full garbage collection. With numba and Arrow loaded, a collection walks some
hundred thousand objects that live as long as the process: around 80 ms a task, more than a small epoch costs. So once
these objects are loaded, they are moved to the collector's permanent generation.

The arrays of a task have the same sizes as those of the task before it. So the worker keeps freed memory.
"""

from __future__ import annotations

import gc

from tailrace.env import memory

_TUNED_TASKS = 3
"""A worker's first tasks load different modules: the ingest and the output task import theirs on first use."""

_KEPT_BYTES = 128 << 20
"""About what one chunk of rows needs on its way: more would be of no use, and belongs to the user."""
_SINGLE_BYTES = 32 << 20
"""The user's own functions may run in this worker too: their large arrays go back to the system as ever."""

_tuned = 0


def tune_worker() -> None:
    """Call at the end of a task. Only the first few calls of a process do anything."""
    global _tuned
    if not _tuned:
        memory.keep(_KEPT_BYTES, single_bytes=_SINGLE_BYTES)
    if _tuned < _TUNED_TASKS:
        _tuned += 1
        gc.collect()  # garbage that is frozen would never be freed
        gc.freeze()
