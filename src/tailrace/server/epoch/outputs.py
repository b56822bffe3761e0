"""What the operators of a server have emitted, for sinks to read. A reader may come before it is there: it waits.

Invariants
- Of every operator at most one output is held: that of the newest (epoch, try) that it has emitted for, until it
  begins to emit again, or is set back.
- An output that no reader can ask for any more gives its memory back.
- A reader waits only for what can still come: never for a try that is over, that has failed, or of a server that ends.

Threading: any thread. Readers take no lock of the engine, so none waits for a step or a delta that is under way.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from tailrace.errors import StateServerError
from tailrace.ids import NO_EPOCH, Attempt
from tailrace.operators.output import EpochOutput

_LOOK_S = 1.0


@dataclass(frozen=True)
class _Held:
    at: Attempt
    output: EpochOutput


class Outputs:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: dict[str, _Held] = {}
        self._newest = Attempt(NO_EPOCH, 0)
        self._failed: dict[Attempt, str] = {}  # of the newest try alone
        self._closed = False

    def read(self, operator: str, at: Attempt, part: int = 0, parts: int = 1) -> Sequence[pa.RecordBatch]:
        """One of ``parts`` parts of an output, about equal in batches; the same one is always cut alike."""
        with self._changed:
            while True:
                held = self._held.get(operator)
                if held is not None and held.at == at:
                    return held.output.part(part, parts)
                self._check_coming(at, held)
                self._changed.wait(_LOOK_S)

    def _check_coming(self, at: Attempt, held: _Held | None) -> None:
        what = f"the output of epoch {at.epoch} try {at.try_}"
        if self._closed:
            raise StateServerError(f"{what} will not come: the server ends")
        if at in self._failed:
            raise StateServerError(f"{what} will not come: {self._failed[at]}")
        if at < self._newest:
            now = "none" if held is None else f"that of epoch {held.at.epoch} try {held.at.try_}"
            raise StateServerError(f"{what} is gone (held: {now})")

    # Called by the engine --------------------------------------------------------------------------------------------

    def begin(self, at: Attempt) -> None:
        """Earlier ones that are not held will not come any more."""
        with self._changed:
            if at > self._newest:
                self._newest = at
                self._failed.clear()
                self._changed.notify_all()

    def put(self, operator: str, at: Attempt, output: EpochOutput) -> None:
        with self._changed:
            self._let_go(operator)
            self._held[operator] = _Held(at, output)
            self._changed.notify_all()

    def drop(self, operator: str) -> None:
        with self._changed:
            self._let_go(operator)

    def _let_go(self, operator: str) -> None:
        held = self._held.pop(operator, None)
        if held is not None:
            held.output.release()

    def fail(self, at: Attempt, why: str) -> None:
        """This try has failed: whoever waits for it gets an error."""
        with self._changed:
            if at == self._newest:
                self._failed[at] = why
                self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
