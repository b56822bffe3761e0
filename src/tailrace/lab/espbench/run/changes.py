"""The downtime of workplace 1 begins and ends while a query runs, and what the database held when is noted."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager

import psycopg

from tailrace.errors import TailraceError
from tailrace.lab.espbench.validator import database
from tailrace.lab.espbench.validator.downtimes import Downtime

WORKPLACE = 1
"""That of machine 1, which is never down in the data."""
_DAY_MS = 86_400_000
_SET = """
    UPDATE workplace SET "WP_DOWNTIME_START" = to_timestamp(%s / 1000.0) AT TIME ZONE 'UTC',
        "WP_DOWNTIME_END" = to_timestamp(%s / 1000.0) AT TIME ZONE 'UTC' WHERE "WP_ID" = %s
"""


class Changes(AbstractContextManager["Changes"]):
    """Every ``every_s``; never, where that is 0. ``known``: of each workplace, oldest first; empty without changes."""

    def __init__(self, url: str, every_s: float) -> None:
        self.known: dict[int, list[Downtime]] = {}
        if every_s:
            self.known = {place: [downtime] for place, downtime in database.downtimes(url).items()}
        self._url = url
        self._every_s = every_s
        self._ended = threading.Event()
        self._error: psycopg.Error | None = None
        self._thread = threading.Thread(target=self._run, name="downtimes", daemon=True)

    def __enter__(self) -> Changes:
        if self._every_s:
            self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        if self._every_s:
            self._thread.join()

    def check(self) -> None:
        if self._error is not None:
            raise TailraceError(f"a downtime could not be changed: {self._error}") from self._error

    def _run(self) -> None:
        down = False
        try:
            with psycopg.connect(self._url, autocommit=True) as connection:
                while not self._ended.wait(self._every_s):
                    down = not down
                    asked_ms = time.time() * 1e3
                    around = _DAY_MS if down else 0
                    start, end = int(asked_ms) - around, int(asked_ms) + around
                    connection.execute(_SET, [start, end, WORKPLACE])
                    self.known[WORKPLACE].append(Downtime(start, end, asked_ms, time.time() * 1e3))
        except psycopg.Error as error:
            self._error = error
