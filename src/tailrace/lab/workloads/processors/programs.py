"""The four programs, of PySpark's ``Row``: a running count, sessions with a timer, a list buffer, maps with a TTL.

They depend on their rows and states alone, and not on the order of a key's rows in a batch: so every engine gives the
same rows. The same four with pandas frames are in ``pandas_programs``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from tailrace.lab.workloads.processors.events import BATCH_S

COUNT_OUTPUT = "key bigint, n bigint, total bigint"
SESSION = "n bigint, begin_ms bigint, last_ms bigint"
SESSION_OUTPUT = f"key bigint, {SESSION}"
BUFFER_OUTPUT = "key bigint, n bigint, total bigint"
MAPS_OUTPUT = "key bigint, entries bigint, n bigint"
SESSION_GAP_MS = BATCH_S * 1_500
BUFFER_ROWS = 6
GROUPS, KINDS = 3, 2
TTL_MS = 3_600_000
"""Nothing expires while a bench runs: what is measured is that it could."""


def entry_of(value: int) -> tuple[int, int]:
    """Of the outer map and the inner one."""
    return value % GROUPS, value % KINDS


class RunningCount(StatefulProcessor):
    """How many rows a key has had, and the sum of their values."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n bigint, total bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        n, total = self._count.get() or (0, 0)
        for row in rows:
            n += 1
            total += row.value
        self._count.update((n, total))
        yield Row(key=key[0], n=n, total=total)


class Sessions(StatefulProcessor):
    """Rows of a key that come with less than a gap between them; given when a timer says that no more can come."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._session = handle.getValueState("session", SESSION)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        session: Any = self._session.get()
        if session is not None:
            self._handle.deleteTimer(session[2] + SESSION_GAP_MS)
        for at in sorted(row.ms for row in rows):
            if session is not None and at < session[2] + SESSION_GAP_MS:
                session = (session[0] + 1, session[1], at)
                continue
            if session is not None:
                yield Row(key=key[0], n=session[0], begin_ms=session[1], last_ms=session[2])
            session = (1, at, at)
        self._session.update(session)
        self._handle.registerTimer(session[2] + SESSION_GAP_MS)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        session: Any = self._session.get()
        yield Row(key=key[0], n=session[0], begin_ms=session[1], last_ms=session[2])
        self._session.clear()


class Buffer(StatefulProcessor):
    """Values are kept in a list until there are enough of them."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._values = handle.getListState("values", "value bigint")
        self._count = handle.getValueState("count", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for n, total in self._buffered([row.value for row in rows]):
            yield Row(key=key[0], n=n, total=total)

    def _buffered(self, values: list[int]) -> Iterator[tuple[int, int]]:
        """How many there were and their sum, where there are enough."""
        self._values.appendList([(value,) for value in values])
        (n,) = self._count.get() or (0,)
        n += len(values)
        if n >= BUFFER_ROWS:
            kept: Any = self._values.get()
            yield n, sum(value for (value,) in kept)
            self._values.clear()
            n = 0
        self._count.update((n,))


class Maps(StatefulProcessor):
    """A count in a map of maps: by group, and in it by kind."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._counts = handle.getMapState("counts", "outer bigint, inner bigint", "n bigint", TTL_MS)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        counts = self._counted(row.value for row in rows)
        yield Row(key=key[0], entries=len(counts), n=sum(counts))

    def _counted(self, values: Iterable[int]) -> list[int]:
        """What all entries of the key's map count by now."""
        for entry, more in Counter(map(entry_of, values)).items():
            found: Any = self._counts.getValue(entry) if self._counts.containsKey(entry) else (0,)
            self._counts.updateValue(entry, (found[0] + more,))
        return [count[0] for _, count in self._counts.iterator()]
