"""The phases of an epoch's commit, as a table of legal steps that is checked at run time.

| phase | means |
|---|---|
| sealed | the server's delta is frozen in memory |
| local | delta and local manifest are on local disk, synced |
| remote | the delta is in the state store |
| durable | the log entry is put: the epoch will never be lost |

A try may be given up in any phase before durable; the next try of the epoch starts at the beginning. In mode ``sync`` a
delta goes straight to the state store, so ``sealed -> remote`` is legal: there is no local copy to wait for.

One thread at a time.
"""

from __future__ import annotations

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
    """Where the newest attempts stand. An attempt that is older than the newest one is given up and takes no step."""

    def __init__(self) -> None:
        self._newest: Attempt | None = None
        self._phase: Phase | None = None

    @property
    def newest(self) -> Attempt | None:
        return self._newest

    @property
    def phase(self) -> Phase | None:
        return self._phase

    def step(self, attempt: Attempt, to: Phase) -> None:
        """Record the step, or raise: a step out of order is a bug here, and going on could lose an epoch."""
        before = self._phase if attempt == self._newest else None
        if self._newest is not None and attempt < self._newest:
            raise RuntimeError(f"{attempt} takes a step to {to}, and {self._newest} has already begun")
        if to not in LEGAL[before]:
            raise RuntimeError(f"{attempt} cannot go from {before or 'nothing'} to {to}")
        if attempt != self._newest and self._newest is not None:
            self._check_successor(attempt)
        self._newest, self._phase = attempt, to

    def _check_successor(self, attempt: Attempt) -> None:
        assert self._newest is not None
        if attempt.epoch > self._newest.epoch and self._phase is not Phase.DURABLE:
            raise RuntimeError(f"{attempt} begins, and {self._newest} is not durable but {self._phase}")
