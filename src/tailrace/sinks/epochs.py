"""Epochs go into a table once and in order, whatever its server does meanwhile.

A server that cannot be reached is tried again for a stated time, each time from the start: open, see which epoch is
there, write. So a commit whose answer was lost is found, and not made twice.

Threads: the epoch's; ``stop`` from any.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa

from tailrace.env import clock, tasks
from tailrace.errors import FencedError, QueryStopped, TableError
from tailrace.sinks.contract import Owner, Table, Unreachable

FIRST_PAUSE_S, PAUSE_S_MAX = 0.05, 2.0
LOG_AFTER_S = 5.0
_log = logging.getLogger("tailrace")
_Answer = TypeVar("_Answer")

Rows = Callable[[], Iterator[pa.RecordBatch]]
"""The rows of an epoch from the first one, each time that it is called."""


class EpochWriter:
    """``check_fence`` raises ``FencedError`` where the query's own log knows a newer run."""

    def __init__(self, table: Table, owner: Owner, patience_s: float, check_fence: Callable[[], None]) -> None:
        self._table = table
        self._owner = owner
        self._patience_s = patience_s
        self._check_fence = check_fence
        self._last: int | None = None  # the newest epoch in the table; None while it is not open
        self._stopping = tasks.event()

    def last_epoch(self) -> int:
        """The newest epoch that the table has; opens it where it is not open."""
        return self._patiently(self._opened)

    def write(self, epoch: int, rows: Rows) -> None:
        """The epoch is in the table when this returns."""
        self._patiently(lambda: self._write(epoch, rows))

    def stop(self) -> None:
        """Wait for no server any more."""
        self._stopping.set()

    def close(self) -> None:
        self._last = None
        self._table.close()

    def _opened(self) -> int:
        if self._last is None:
            self._check_fence()  # a run that was replaced must not disturb its successor
            self._last = self._table.open(self._owner)
        return self._last

    def _write(self, epoch: int, rows: Rows) -> None:
        if self._opened() >= epoch:
            return
        self._table.write(epoch, rows(), self._check_fence)
        self._last = epoch

    def _patiently(self, work: Callable[[], _Answer]) -> _Answer:
        began, tries, logged = clock.monotonic(), 0, False
        while True:
            try:
                return work()
            except Unreachable as error:
                self.close()
                tries, spent = tries + 1, clock.monotonic() - began
                if spent >= self._patience_s:
                    raise TableError(
                        f"{self._table.shown} could not be written for {spent:.0f} s, in {tries} tries: {error}. "
                        f"Nothing is lost: start the query again when it can be, and it goes on with this epoch. How "
                        f"long it is tried: option 'sinkTimeout'"
                    ) from error
                if spent > LOG_AFTER_S and not logged:
                    logged = True
                    _log.warning("%s: trying on for %.0f s: %s", self._table.shown, self._patience_s, error)
                pause = min(PAUSE_S_MAX, FIRST_PAUSE_S * 2 ** min(tries - 1, 10), self._patience_s - spent)
                if self._stopping.wait(pause):
                    raise QueryStopped(f"the query was stopped while {self._table.shown} was not there") from error
            except FencedError:
                self.close()
                self._check_fence()  # the log's word, where it knows of the newer run, says more
                raise
            except BaseException:
                self.close()
                raise
