"""Hints that wait to be worked on under the engine's lock, beside the steps of epochs.

Invariants
- A hint changes no answer and may be lost: one that finds the queue full is dropped, and counted.
- The first hints of rows are worked on at once (``run``) where the engine is free: another thread would first have to
  get a processor, which tasks keep busy just then, and the gain is a few milliseconds.
- Whoever holds the engine's lock for long works on waiting hints in between (``catch_up``), in its own thread.
- Work that fails ends nothing: an operator that cannot take a hint meets what is wrong when it needs the state, and
  reports it there. It is counted, and the first error of each kind is logged, since one that only hints meet would
  otherwise be seen nowhere.

Threads: any thread hands in; one thread of the queue's own works, under the engine's lock for as long as an operator
takes to say what it lacks. Reading is the operators' own affair, behind that.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from tailrace.env.tasks import Lock

_WAITING_MAX = 32
"""Frames that wait keep their memory."""
_CLOSING_S = 10.0

_log = logging.getLogger("tailrace.server")

Work = Callable[[], None]


class HintQueue:
    """``engine``: the lock under which all work is done."""

    def __init__(self, engine: Lock) -> None:
        self.engine = engine
        self.dropped = self.failed = 0
        self._logged: set[type[Exception]] = set()
        self._waiting: deque[Work] = deque()
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        self._closed = False

    def run(self, work: Work) -> None:
        """Have it done at once; soon, where the engine is at something else; or not at all."""
        if not self.engine.acquire(blocking=False):
            self.add(work)
            return
        try:
            if not self._closed:
                self._do(work)
        finally:
            self.engine.release()

    def add(self, work: Work) -> bool:
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
        """Work on what waits. Called under the engine's lock."""
        while self._waiting:
            try:
                work = self._waiting.popleft()
            except IndexError:  # the queue's own thread never is here meanwhile, but whoever closes it may be
                return
            self._do(work)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
            thread = self._thread
        if self.engine.acquire(timeout=_CLOSING_S):  # whoever was at work has then ended
            self.engine.release()
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
            with self.engine:
                self.catch_up()

    def _do(self, work: Work) -> None:
        try:
            work()
        except Exception as error:
            self.failed += 1
            if type(error) not in self._logged:
                self._logged.add(type(error))
                _log.warning("a prefetch hint could not be used, and more like it are not logged", exc_info=error)
