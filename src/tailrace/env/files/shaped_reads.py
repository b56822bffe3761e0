"""A device that takes its time: reads by key cost what a slow or far store costs, for tests and benches.

A read of one key takes ``read_s`` from when it is asked for; ``depth`` of them are under way at once, and others queue.
Who reads a batch waits until the last of it is there: what the real store behind takes to answer is part of that time,
and not added to it. With ``read_s`` of 0 it costs nothing.

Threads: any; they share the device.
"""

from __future__ import annotations

import threading

from tailrace.env import clock


class ReadDevice:
    def __init__(self, read_s: float = 0.0, depth: int = 32) -> None:
        if read_s < 0 or depth < 1:
            raise ValueError(f"a read of {read_s} s, {depth} at once: must be at least 0, and at least 1")
        self._read_s, self._depth = read_s, depth
        self._lock = threading.Lock()
        self._free_at = 0.0

    def ask(self, reads: int) -> float:
        """Ask for so many, behind those of others: when they will be there (0: at once)."""
        if not self._read_s or not reads:
            return 0.0
        with self._lock:
            now = clock.monotonic()
            self._free_at = max(now, self._free_at) + reads * self._read_s / self._depth
            return max(self._free_at, now + self._read_s)

    def wait(self, due: float) -> None:
        """Until what was asked for is there."""
        left = due - clock.monotonic() if due else 0.0
        if left > 0:
            clock.sleep(left)
