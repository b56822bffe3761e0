"""A shaped disk: reads by key cost what a slow or far store costs. For tests and benches; users never set it.

A process has a shaped disk where its environment says so: ``TAILRACE_SHAPED_READS=0.001:32`` means that a read of one
key takes a millisecond from when it is asked for, and that 32 of them are under way at once while others queue. A batch
of reads ends when its last one does; the time that the real store takes is part of that time, and not added to it.

Threads: any; they share the device.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.env import clock

VARIABLE = "TAILRACE_SHAPED_READS"


class ReadDevice:
    """With ``read_s`` of 0 it costs nothing."""

    def __init__(self, read_s: float = 0.0, depth: int = 32) -> None:
        if read_s < 0 or depth < 1:
            raise ValueError(f"a read of {read_s} s, {depth} at once: must be at least 0, and at least 1")
        self._read_s, self._depth = read_s, depth
        self._lock = threading.Lock()
        self._free_at = 0.0

    @property
    def slow(self) -> bool:
        return self._read_s > 0

    @contextmanager
    def reading(self, reads: int) -> Iterator[None]:
        """So many reads, which queue behind those of others: ends no sooner than the device has done them."""
        if not self._read_s or not reads:
            yield
            return
        with self._lock:
            now = clock.monotonic()
            self._free_at = max(now, self._free_at) + reads * self._read_s / self._depth
            due = max(self._free_at, now + self._read_s)
        yield
        left = due - clock.monotonic()
        if left > 0:
            clock.sleep(left)


def shaped(read_s: float, depth: int = 32) -> str:
    """The value of the environment variable for such a device."""
    return f"{read_s!r}:{depth}"


def read_device() -> ReadDevice:
    """The device that this process's environment asks for; usually one that costs nothing."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return ReadDevice()
    read_s, _, depth = text.partition(":")
    try:
        return ReadDevice(float(read_s), int(depth or 32))
    except ValueError as error:
        raise ValueError(f"{VARIABLE}={text}: must be SECONDS:DEPTH, for instance 0.001:32 ({error})") from error
