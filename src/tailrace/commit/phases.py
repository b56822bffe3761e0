"""The phases of an epoch's commit, as a table of legal steps that is checked at run time.

| phase | means |
|---|---|
| sealed | the servers' deltas are frozen in memory: the next epoch may change their state |
| local | deltas are on local disks, synced |
| remote | deltas are in the state store |
| durable | the log entry is put: the epoch will never be lost |

A try may be given up in any phase before durable; the next try of the epoch starts at the beginning. Where the state
store is a local disk itself there is no other copy to wait for, so ``sealed -> remote`` is legal.

Between epochs two rules hold. An epoch is durable only after the one before it, so that the log is a prefix of what
happened. And an epoch begins its commit only when the one before it has begun its own, and the one before that is
durable: of the epochs in Spark's log, at most one is not durable.

Safe from any thread.
"""

from __future__ import annotations

import threading
from enum import StrEnum

from tailrace.ids import Attempt


class Phase(StrEnum):
    SEALED = "sealed"
    LOCAL = "local"
    REMOTE = "remote"
    DURABLE = "durable"
    GIVEN_UP = "given up"


LEGAL: dict[Phase | None, frozenset[Phase]] = {
    None: frozenset({Phase.SEALED, Phase.GIVEN_UP}),
    Phase.SEALED: frozenset({Phase.LOCAL, Phase.REMOTE, Phase.GIVEN_UP}),
    Phase.LOCAL: frozenset({Phase.REMOTE, Phase.GIVEN_UP}),
    Phase.REMOTE: frozenset({Phase.DURABLE, Phase.GIVEN_UP}),
    Phase.DURABLE: frozenset(),
    Phase.GIVEN_UP: frozenset(),
}


class Phases:
    """Where the newest try of each of the newest epochs stands.

    ``recovered``: the epoch that is durable from the start.

    A step out of order is a bug here, and going on could lose an epoch: it raises.
    """

    def __init__(self, recovered: int) -> None:
        self._lock = threading.Lock()
        self._durable = recovered
        self._stands: dict[int, tuple[int, Phase]] = {}  # epoch -> newest try, its phase

    @property
    def durable(self) -> int:
        """The newest epoch that is durable, as is every one before it."""
        with self._lock:
            return self._durable

    def of(self, attempt: Attempt) -> Phase | None:
        with self._lock:
            try_, phase = self._stands.get(attempt.epoch, (-1, None))
            return phase if try_ == attempt.try_ else None

    def step(self, attempt: Attempt, to: Phase) -> None:
        with self._lock:
            try_, phase = self._stands.get(attempt.epoch, (-1, None))
            if attempt.try_ < try_:
                raise RuntimeError(f"{attempt} takes a step to {to}, and try {try_} has already begun")
            before = phase if attempt.try_ == try_ else None
            if to not in LEGAL[before]:
                raise RuntimeError(f"{attempt} cannot go from {before or 'nothing'} to {to}")
            if to is Phase.SEALED:
                self._check_begin(attempt)
            if to is Phase.DURABLE and self._durable < attempt.epoch - 1:
                raise RuntimeError(f"{attempt} would be durable, and epoch {attempt.epoch - 1} is not")
            self._stands[attempt.epoch] = (attempt.try_, to)
            if to is Phase.DURABLE:
                self._durable = max(self._durable, attempt.epoch)
                for epoch in [epoch for epoch in self._stands if epoch < attempt.epoch]:
                    del self._stands[epoch]

    def _check_begin(self, attempt: Attempt) -> None:
        last = attempt.epoch - 1
        if last <= self._durable:
            return
        if last > self._durable + 1:
            raise RuntimeError(f"{attempt} begins, and epoch {last - 1} is not durable")
        if self._stands.get(last, (-1, Phase.GIVEN_UP))[1] is Phase.GIVEN_UP:
            raise RuntimeError(f"{attempt} begins, and epoch {last} has not begun its commit")
