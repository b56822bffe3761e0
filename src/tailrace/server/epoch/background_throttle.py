"""When a state server has time for what nobody waits for: not while an epoch's rows come and are worked on.

Work behind epochs runs beside them in threads of one process, and these share the interpreter's lock. A thread that
has it and must wait for a processor holds up all others, on a busy machine for many milliseconds: just those in which
hints are worked on and rows wait for state. (All the more where that thread has a low priority: so none has.) So
whoever works behind asks, between two pieces of it, whether it is a good time.

A busy time ends with its epoch, or a while after its last sign: an epoch that was given up has no end. Nobody is kept
waiting for long, however many epochs follow each other without a pause.

Threads: any.
"""

from __future__ import annotations

import threading

from tailrace.env.clock import SYSTEM, Clock

_BUSY_S = 1.0
_WAIT_S = 0.25


class BackgroundThrottle:
    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._until = float("-inf")

    def mark_busy(self) -> None:
        """Rows of an epoch come, or are worked on."""
        with self._changed:
            self._until = self._clock.monotonic() + _BUSY_S

    def over(self) -> None:
        """The epoch is worked on, as far as anybody waits for it."""
        with self._changed:
            self._until = float("-inf")
            self._changed.notify_all()

    def wait(self) -> None:
        """Until it is not busy, but not for long."""
        with self._changed:
            ends = self._clock.monotonic() + _WAIT_S
            while (left := min(self._until, ends) - self._clock.monotonic()) > 0:
                self._changed.wait(left)
