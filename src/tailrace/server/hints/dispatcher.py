"""The hint desk: tells operators which keys are on their way, beside the steps of epochs.

Invariants
- A hint changes no answer and may be lost: one that finds the desk full, or comes when its epoch is applied, is
  dropped, and counted.
- Staging hands in each frame as it comes, so that its cold state is read while the batch still arrives. Where no
  operator has cold state, that costs a look at a flag.
- The first hints of rows are told at once (``tell``) where the engine is free: another thread would first have to get a
  processor, which tasks keep busy just then, and what it is about is a few milliseconds.
- Whoever holds the engine's lock for long lets waiting hints be told in between (``catch_up``), in its own thread.
- Frames of tasks that go on (``shown``) have more time: nobody waits until they are told, and those that have come
  meanwhile are told together.

Threads: anybody hands in; one thread of its own works, under the engine's lock for as long as an operator takes to say
what it lacks. Reading is the operators' own affair, behind that.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tailrace.env.tasks import Lock
from tailrace.operators.base import Hinted, HintedByKey, HintedKeys
from tailrace.server.epoch.operator_runner import OperatorRunner

_WAITING_MAX = 32
"""Frames that wait keep their memory."""
_CLOSING_S = 10.0

Work = Callable[[], None]
Gather = Callable[[str, list[Any]], Sequence[Any]]
"""Puts frames of an operator together where they are small."""


class HintDispatcher:
    def __init__(
        self,
        engine: Lock,
        runners: Mapping[str, OperatorRunner],
        takes: Callable[[OperatorRunner, int], bool],
        mark_busy: Callable[[], None] = lambda: None,
        gather: Gather = lambda operator, frames: frames,
    ) -> None:
        """``engine``: the lock under which all work is done. ``takes``: whether hints for an epoch still come in time,
        asked under it. ``rush``: called when rows are about to come."""
        self._gather = gather
        self._shown: dict[tuple[str, int], list[Any]] = {}  # frames that wait, by operator and epoch
        self._engine, self._runners, self._takes, self._mark_busy = engine, runners, takes, mark_busy
        self._foretold: dict[str, int] = {}  # by operator, the newest epoch for which keys came ahead of rows
        self._waiting: deque[Work] = deque()
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        self._closed = False
        self.dropped = 0

    def offer(self, operator: str, frame: Any, epoch: int) -> None:
        """A frame was staged: what it needs may be fetched while others still come."""
        self._mark_busy()
        if isinstance(taker := self._runners[operator].operator, Hinted) and taker.wants_hints():
            # Where its keys were foretold before, nearly all is on its way, and the task need not wait for the rest.
            tell = self.hand_in if self._foretold.get(operator) == epoch else self.tell
            tell(lambda: self._hint(operator, epoch, lambda hinted: hinted.hint_frame(frame, epoch)))

    def show(self, operator: str, frame: Any, epoch: int) -> None:
        """As ``offer``, of a frame whose task still goes on."""
        self._mark_busy()
        if not isinstance(taker := self._runners[operator].operator, Hinted) or not taker.wants_hints():
            return
        with self._changed:
            waiting = self._shown.setdefault((operator, epoch), [])
            waiting.append(frame)
            if len(waiting) > 1:
                return  # who comes for the first takes them all
        if not self.hand_in(lambda: self._tell_shown(operator, epoch)):
            self._take_shown(operator, epoch)

    def _tell_shown(self, operator: str, epoch: int) -> None:
        """Under the engine's lock."""
        frames = self._take_shown(operator, epoch)

        def tell(hinted: Hinted) -> None:
            for frame in self._gather(operator, frames):
                hinted.hint_frame(frame, epoch)

        self._hint(operator, epoch, tell)

    def _take_shown(self, operator: str, epoch: int) -> list[Any]:
        with self._changed:
            return self._shown.pop((operator, epoch), [])

    def hint_keys(self, operator: str, epoch: int, told: HintedKeys) -> None:
        """Keys that are on their way to an operator in this epoch. Whatever is wrong with them, nothing happens."""
        self._mark_busy()
        runner = self._runners.get(operator)
        if runner is not None and isinstance(runner.operator, Hinted) and runner.operator.wants_hints():
            self._foretold[operator] = epoch
            self.tell(lambda: self._hint(operator, epoch, lambda hinted: hinted.hint_keys(told, epoch)))

    def lacking(self, operator: str, hashes: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Of keys that are on their way, which the operator would fetch: none where it takes no hints."""
        runner = self._runners.get(operator)
        if runner is not None and isinstance(runner.operator, HintedByKey) and runner.operator.wants_hints():
            return runner.operator.lacking(hashes, times)
        return np.zeros(len(hashes), bool)

    def _hint(self, operator: str, epoch: int, tell: Callable[[Hinted], None]) -> None:
        """Under the engine's lock."""
        runner = self._runners[operator]
        if self._takes(runner, epoch) and isinstance(runner.operator, Hinted):
            tell(runner.operator)

    def tell(self, work: Work) -> None:
        """Have it done at once, or where the engine is at something else soon, or not at all."""
        if not self._engine.acquire(blocking=False):
            self.hand_in(work)
            return
        try:
            if not self._closed:
                self._do(work)
        finally:
            self._engine.release()

    def hand_in(self, work: Work) -> bool:
        """Have it done soon, or not at all: then it is not taken."""
        with self._changed:
            if self._closed:
                return False
            if len(self._waiting) == _WAITING_MAX:
                self.dropped += 1
                return False
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tailrace-hints", daemon=True)
                self._thread.start()
            self._waiting.append(work)
            self._changed.notify()
            return True

    def catch_up(self) -> None:
        """Tell what waits. Called under the engine's lock."""
        while self._waiting:
            try:
                work = self._waiting.popleft()
            except IndexError:  # the desk's own thread never is here meanwhile, but who closes it may be
                return
            self._do(work)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
            thread = self._thread
        if self._engine.acquire(timeout=_CLOSING_S):  # who is telling has then told
            self._engine.release()
        if thread is None:
            return
        thread.join(timeout=_CLOSING_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
            with self._engine:
                self.catch_up()

    def _do(self, work: Work) -> None:
        try:
            work()
        except Exception:  # an operator that cannot take a hint will meet what is wrong when it needs the state
            self.dropped += 1
