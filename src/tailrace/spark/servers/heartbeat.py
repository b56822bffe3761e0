"""Notices a state server that is there and does not answer: its machine hangs, or it does.

A thread asks every server several times within the time allowed. One that was silent for all of it is reported to
``silent``, once; what follows is that callback's business (the fleet ends it, and the epoch gets a new try). A server
of this machine that uses processor time meanwhile is busy rather than gone, so it gets ten times as long: a function of
the user's may hold Python's lock. Time in which this process itself stood still is nobody's silence.

Threads: one of its own, and one for each question that is not answered yet. ``stop`` waits for none of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tailrace.env import clock, processes, tasks
from tailrace.env.files.disk import is_this_machine
from tailrace.server.transport.server_config import ServerAddress

_log = logging.getLogger("tailrace")
_QUESTIONS = 5
_BUSY_TIMES = 10
_ASKED_MAX = 1024
"""Servers at once: one that answers must not wait behind those that do not."""
_BUSY_SHARE = 0.1
"""Of the time that it was silent, so much processor time makes a server busy."""


@dataclass
class _LastAnswer:
    """Of one server: when it last answered, and what processor time it had used by then."""

    at: float
    cpu_s: float | None
    asked: tasks.Call[bool] | None = field(default=None)
    reported: bool = False


class Heartbeat:
    """``servers``: those of the moment. ``ask``: whether one answers within so many seconds."""

    def __init__(
        self,
        servers: Callable[[], Sequence[ServerAddress]],
        ask: Callable[[ServerAddress, float], bool],
        silent: Callable[[ServerAddress, float], None],
        timeout_s: float,
    ) -> None:
        self._servers = servers
        self._ask = ask
        self._silent = silent
        self._timeout_s = timeout_s
        self._answers: dict[str, _LastAnswer] = {}
        self._stopped = tasks.event()
        self._worker = tasks.worker("tailrace-ask", _ASKED_MAX)
        self._round_at = clock.monotonic()
        tasks.start("tailrace-heartbeat", self._run)

    def stop(self) -> None:
        self._stopped.set()
        self._worker.shutdown(wait=False)

    def _run(self) -> None:
        while not self._stopped.wait(self._timeout_s / _QUESTIONS):
            try:
                self._round(list(self._servers()))
            except Exception as error:
                if not self._stopped.is_set():
                    _log.warning("asking the state servers whether they live has failed: %s", error)

    def _round(self, servers: list[ServerAddress]) -> None:
        now = clock.monotonic()
        stood_still_s = max(0.0, now - self._round_at - 2 * self._timeout_s / _QUESTIONS)
        self._round_at = now
        self._answers = {
            server.server: self._answers.get(server.server) or _LastAnswer(now, _cpu_seconds(server))
            for server in servers
        }
        for server in servers:
            last = self._answers[server.server]
            last.at = min(now, last.at + stood_still_s)
            if last.asked is not None and last.asked.done():
                if last.asked.exception() is None and last.asked.result():
                    last.at, last.cpu_s, last.reported = now, _cpu_seconds(server), False
                last.asked = None
            if last.asked is None:
                last.asked = self._worker.submit(self._ask, server, self._timeout_s)
            silent_s = now - last.at
            if silent_s > self._timeout_s and not last.reported and not self._busy(server, last, silent_s):
                last.reported = True
                self._silent(server, silent_s)

    def _busy(self, server: ServerAddress, last: _LastAnswer, silent_s: float) -> bool:
        cpu_s = _cpu_seconds(server)
        if cpu_s is None or last.cpu_s is None or silent_s > _BUSY_TIMES * self._timeout_s:
            return False
        return cpu_s - last.cpu_s > _BUSY_SHARE * silent_s


def _cpu_seconds(server: ServerAddress) -> float | None:
    """Processor time of a server of this machine; None where it cannot be known."""
    if not is_this_machine(server.host):
        return None
    return processes.cpu_seconds(server.pid) if processes.alive(server.pid, server.started) else None
