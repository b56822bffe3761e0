"""Memory for what passes through a server: staged frames, outputs that wait for their sinks, deltas to be saved.

One account for all of it, a fixed part of the memory budget. Whoever has bytes to hold asks for room, and brings what
finds none to the scratch disk. So what passes through takes no more than its part, however large an epoch is.

Threads: any; one lock, held for a sum.
"""

from __future__ import annotations

import threading


class TransitMemory:
    """
    >>> transit = TransitMemory(100)
    >>> transit.take(60), transit.take(60), transit.held_bytes
    (True, False, 60)
    >>> transit.give_back(60)
    >>> transit.take(100), transit.peak_bytes
    (True, 100)
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._lock = threading.Lock()
        self._held = self._peak = 0

    @property
    def held_bytes(self) -> int:
        return self._held

    @property
    def peak_bytes(self) -> int:
        """The most that was ever held."""
        return self._peak

    def take(self, bytes_: int) -> bool:
        """Whether there was room for so much. If so, it is the caller's until it is given back."""
        with self._lock:
            if self._held + bytes_ > self.bytes_max:
                return False
            self._held += bytes_
            self._peak = max(self._peak, self._held)
            return True

    def give_back(self, bytes_: int) -> None:
        with self._lock:
            self._held -= bytes_
