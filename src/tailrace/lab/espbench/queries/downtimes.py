"""Planned downtimes of workplaces, asked of the database for many of them at once, and kept for a while."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import psycopg
import pyarrow as pa

DOWNTIMES = """
    SELECT DISTINCT ON ("WP_ID") "WP_ID", "WP_DOWNTIME_START" AT TIME ZONE 'UTC', "WP_DOWNTIME_END" AT TIME ZONE 'UTC'
    FROM workplace WHERE "WP_ID" = ANY(%s) ORDER BY "WP_ID", "WP_DT_ID"
"""


class Copies:
    """One connection and the copies of a process; not thread-safe. A copy is as old as its question."""

    def __init__(self, database: str, max_age_s: float) -> None:
        self._database = database
        self._max_age_s = max_age_s
        self._connection: psycopg.Connection[Any] | None = None
        self._kept: dict[int, tuple[float, tuple[Any, Any]]] = {}

    def rows(self, workplaces: Sequence[int]) -> pa.Table:
        """``workplace``, ``start`` and ``end`` of those that have a downtime."""
        now = time.monotonic()
        kept = {place: row for place, (asked, row) in self._kept.items() if now - asked < self._max_age_s}
        if missing := [place for place in workplaces if place not in kept]:
            if self._connection is None:
                self._connection = psycopg.connect(self._database, autocommit=True, options="-c timezone=UTC")
            for place, start, end in self._connection.execute(DOWNTIMES, [missing]).fetchall():
                kept[place] = (start, end)
                self._kept[place] = (now, (start, end))
        found = [place for place in workplaces if place in kept]
        return pa.table(
            {
                "workplace": pa.array(found, pa.int32()),
                "start": pa.array([kept[place][0] for place in found], pa.timestamp("us", "UTC")),
                "end": pa.array([kept[place][1] for place in found], pa.timestamp("us", "UTC")),
            }
        )


@cache
def copies_of(database: str, max_age_s: float) -> Copies:
    """This process's own: Spark's Python workers outlive a batch."""
    return Copies(database, max_age_s)
