"""Parts of stages that are not finished yet: frames in files, which the server holds until their task has sent all.

Invariants
- A part is no stage: nothing is counted or applied of it. It becomes one with the last call of its task, whose
  receipt must be that of all frames, in the order of the parts.
- What a task left that did not finish goes when its epoch is forgotten.

Threads: any; one lock, held for bookkeeping only.
"""

from __future__ import annotations

import threading

import pyarrow as pa

from tailrace.errors import StateServerError
from tailrace.ids import NO_EPOCH
from tailrace.server.transport.stage_messages import StageKey


class StagedParts:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[StageKey, dict[int, list[pa.RecordBatch]]] = {}
        self._forgotten: int = NO_EPOCH

    def hold(self, key: StageKey, number: int, frames: list[pa.RecordBatch]) -> None:
        """Until it is taken; not at all where nobody can ask for it any more."""
        with self._lock:
            if key.epoch > self._forgotten:
                self._held.setdefault(key, {})[number] = frames

    def take(self, key: StageKey, count: int) -> list[pa.RecordBatch]:
        """The frames of the first ``count`` parts, which are held no more."""
        with self._lock:
            held = self._held.pop(key, {})
        missing = [number for number in range(count) if number not in held]
        if missing:
            raise StateServerError(f"of attempt {key.attempt} {len(missing)} of {count} parts did not arrive")
        return [frame for number in range(count) for frame in held[number]]

    def forget(self, epoch: int) -> None:
        """No task of these epochs can finish any more."""
        with self._lock:
            self._forgotten = max(self._forgotten, epoch)
            for key in [key for key in self._held if key.epoch <= epoch]:
                del self._held[key]
