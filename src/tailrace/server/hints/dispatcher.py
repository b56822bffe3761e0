"""Gives operators the keys that are on their way, so that spilled state is read while a batch still arrives.

Invariants
- A hint changes no answer and may be lost: one that comes when its epoch is applied is dropped.
- Each frame is offered as it is staged. Where no operator has spilled state, that costs a look at a flag.
- Frames of tasks that still go on (``show``) have more time: nobody waits for the work on them, and all that have
  come meanwhile are worked on together.

Threads: any thread may call; all work is done under the engine's lock (``queue``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tailrace.operators.base import Hinted, HintedByKey, HintedKeys
from tailrace.server.hints.queue import HintQueue

Gather = Callable[[str, list[Any]], Sequence[Any]]
"""Puts frames of an operator together where they are small."""


class HintDispatcher:
    def __init__(
        self,
        queue: HintQueue,
        operator_of: Callable[[str], object],
        accepts: Callable[[str, int], bool],
        mark_busy: Callable[[], None] = lambda: None,
        gather: Gather = lambda operator, frames: frames,
    ) -> None:
        """``operator_of``: the operator of a name as it is now, None where there is none of that name.

        ``accepts``: whether hints for an operator and epoch still come in time; called under the engine's lock.

        ``mark_busy``: called when rows are about to come.
        """
        self._queue, self._operator_of, self._accepts = queue, operator_of, accepts
        self._mark_busy, self._gather = mark_busy, gather
        self._lock = threading.Lock()
        self._shown: dict[tuple[str, int], list[Any]] = {}  # frames that wait, by operator and epoch
        self._hinted: dict[str, int] = {}  # by operator, the newest epoch for which keys came ahead of rows

    def offer(self, operator: str, frame: Any, epoch: int) -> None:
        """A frame was staged: what it needs may be fetched while others still come."""
        self._mark_busy()
        if self._wants_hints(operator):
            # Where hints of its keys came before, nearly all is on its way, and the task need not wait for the rest.
            submit = self._queue.add if self._hinted.get(operator) == epoch else self._queue.run
            submit(lambda: self._hint(operator, epoch, lambda hinted: hinted.hint_frame(frame, epoch)))

    def show(self, operator: str, frame: Any, epoch: int) -> None:
        """As ``offer``, of a frame whose task still goes on."""
        self._mark_busy()
        if not self._wants_hints(operator):
            return
        with self._lock:
            waiting = self._shown.setdefault((operator, epoch), [])
            waiting.append(frame)
            if len(waiting) > 1:
                return  # the work on the first one takes them all
        if not self._queue.add(lambda: self._hint_shown(operator, epoch)):
            self._take_shown(operator, epoch)

    def _hint_shown(self, operator: str, epoch: int) -> None:
        """Under the engine's lock."""
        frames = self._take_shown(operator, epoch)

        def hint(hinted: Hinted) -> None:
            for frame in self._gather(operator, frames):
                hinted.hint_frame(frame, epoch)

        self._hint(operator, epoch, hint)

    def _take_shown(self, operator: str, epoch: int) -> list[Any]:
        with self._lock:
            return self._shown.pop((operator, epoch), [])

    def hint_keys(self, operator: str, epoch: int, keys: HintedKeys) -> None:
        """Keys that are on their way to an operator in this epoch. Whatever is wrong with them, nothing happens."""
        self._mark_busy()
        if self._wants_hints(operator):
            self._hinted[operator] = epoch
            self._queue.run(lambda: self._hint(operator, epoch, lambda hinted: hinted.hint_keys(keys, epoch)))

    def lacking(self, operator: str, hashes: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Of keys that are on their way, which the operator would fetch: none where it takes no hints."""
        found = self._operator_of(operator)
        if isinstance(found, HintedByKey) and found.wants_hints():
            return found.lacking(hashes, times)
        return np.zeros(len(hashes), bool)

    def _hint(self, operator: str, epoch: int, hint: Callable[[Hinted], None]) -> None:
        """Under the engine's lock."""
        if self._accepts(operator, epoch) and isinstance(found := self._operator_of(operator), Hinted):
            hint(found)

    def _wants_hints(self, operator: str) -> bool:
        found = self._operator_of(operator)
        return isinstance(found, Hinted) and found.wants_hints()

    def close(self) -> None:
        self._queue.close()
