"""A device that takes its time: reads by key cost what a slow or far store costs, for tests and benches.

A read of one key takes ``read_s``; ``depth`` of them are under way at once, and others queue. Who reads a batch waits
until the last of it is there. With ``read_s`` of 0 it costs nothing.

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

    def wait(self, reads: int) -> None:
        """As long as so many reads take, behind those that others wait for."""
        if not self._read_s or not reads:
            return
        with self._lock:
            now = clock.monotonic()
            self._free_at = max(now, self._free_at) + reads * self._read_s / self._depth
            done = max(self._free_at, now + self._read_s)
        clock.sleep(done - now)
