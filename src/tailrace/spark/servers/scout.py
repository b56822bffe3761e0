"""Looks which executors Spark has: those that are new get servers, and the servers of those that go give up their
shards.

Spark says of each executor whether it still gets tasks. One that is decommissioned, or about to be removed, does not.
Where it has no server yet, tasks are sent out to start one; they may miss it where all its slots are taken, so that
they are sent again, ever more rarely.

Threads: one of its own, which no one waits for. What it finds, the fleet takes in at the begin of an epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from tailrace.env import clock, tasks
from tailrace.errors import AnalysisError
from tailrace.spark.servers.fleet import Fleet
from tailrace.spark.servers.losses import one_line

_log = logging.getLogger("tailrace")
_LOOK_S = 1.0
_AGAIN_S, _AGAIN_S_MAX = 2.0, 60.0
"""Before tasks are sent again to executors that they have missed."""


class Scout:
    """``executors``: by Spark's ids, all that there are, and whether each still gets tasks."""

    def __init__(self, fleet: Fleet, executors: Callable[[], Mapping[str, bool]]) -> None:
        self._fleet = fleet
        self._executors = executors
        self._missed: frozenset[str] = frozenset()
        self._again_at, self._pause_s = 0.0, _AGAIN_S
        self._stopped = tasks.event()
        tasks.start("tailrace-scout", self._run)

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            try:
                self.look()
            except AnalysisError as error:
                _log.warning("executors that come or go are not noticed: %s", one_line(error))
                return
            except Exception as error:
                if not self._stopped.is_set():
                    _log.info("looking for executors has failed: %s", one_line(error))

    def look(self) -> None:
        found = self._executors()
        members = self._fleet.members
        self._fleet.leave(server.server for server in members if server.executor and not found.get(server.executor))
        missed = frozenset(each for each, stays in found.items() if stays) - {server.executor for server in members}
        if not missed or not self._fleet.has_room:
            self._missed = frozenset()
            return
        if missed <= self._missed and clock.monotonic() < self._again_at:
            return
        self._pause_s = min(2 * self._pause_s, _AGAIN_S_MAX) if missed <= self._missed else _AGAIN_S
        self._missed = missed
        try:
            self._fleet.find_more()
        finally:
            self._again_at = clock.monotonic() + self._pause_s
