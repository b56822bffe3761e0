"""What a Python worker of Spark owes to being reused for many small tasks.

After every task PySpark's daemon runs a full garbage collection. With numba and Arrow loaded that walks some hundred
thousand objects that live as long as the process: around 80 ms a task, more than a small epoch costs. Once they are
loaded they are moved out of the collector's sight.

A task's arrays are of the same sizes as those of the task before it. So the worker keeps the memory that they leave.
"""

from __future__ import annotations

import gc

from tailrace.env import memory as kept_memory

_SETTLING_TASKS = 3
"""A worker's first tasks load different parts: ingest and emission, each on first use."""

_KEPT_BYTES = 128 << 20
"""About what one chunk of rows needs on its way: more would be of no use, and is the user's."""
_SINGLE_BYTES = 32 << 20
"""A user's own functions may run in this worker too: their large arrays go back to the system as ever."""

_settled = 0


def settle() -> None:
    """Call at the end of a task. Only the first few calls of a process do anything."""
    global _settled
    if not _settled:
        kept_memory.keep(_KEPT_BYTES, single_bytes=_SINGLE_BYTES)
    if _settled < _SETTLING_TASKS:
        _settled += 1
        gc.collect()  # what is garbage now would otherwise be kept for ever
        gc.freeze()
