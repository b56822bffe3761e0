"""The programs of ``programs`` with pandas frames, for ``transformWithStateInPandas``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from tailrace.lab.workloads.processors.programs import (
    BUFFER_ROWS,
    SESSION,
    SESSION_GAP_MS,
    TTL_MS,
    entry_of,
)

Frames = Iterator[pd.DataFrame]


class RunningCount(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n bigint, total bigint")

    def handleInputRows(self, key: Any, rows: Frames, timerValues: Any) -> Frames:
        n, total = self._count.get() or (0, 0)
        for frame in rows:
            n += len(frame)
            total += int(frame["value"].sum())
        self._count.update((n, total))
        yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})


class Sessions(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._session = handle.getValueState("session", SESSION)

    def handleInputRows(self, key: Any, rows: Frames, timerValues: Any) -> Frames:
        session: Any = self._session.get()
        if session is not None:
            self._handle.deleteTimer(session[2] + SESSION_GAP_MS)
        for at in sorted(int(at) for frame in rows for at in frame["ms"]):
            if session is not None and at < session[2] + SESSION_GAP_MS:
                session = (session[0] + 1, session[1], at)
                continue
            if session is not None:
                yield self._given(key, session)
            session = (1, at, at)
        self._session.update(session)
        self._handle.registerTimer(session[2] + SESSION_GAP_MS)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Frames:
        yield self._given(key, self._session.get())
        self._session.clear()

    def _given(self, key: Any, session: Any) -> pd.DataFrame:
        return pd.DataFrame({"key": [key[0]], "n": [session[0]], "begin_ms": [session[1]], "last_ms": [session[2]]})


class Buffer(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._values = handle.getListState("values", "value bigint")
        self._count = handle.getValueState("count", "n bigint")

    def handleInputRows(self, key: Any, rows: Frames, timerValues: Any) -> Frames:
        values: Any = [(int(value),) for frame in rows for value in frame["value"]]
        self._values.appendList(values)
        (n,) = self._count.get() or (0,)
        n += len(values)
        if n >= BUFFER_ROWS:
            total = sum(value for (value,) in self._values.get())
            yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})
            self._values.clear()
            n = 0
        self._count.update((n,))


class Maps(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._counts = handle.getMapState("counts", "outer bigint, inner bigint", "n bigint", TTL_MS)

    def handleInputRows(self, key: Any, rows: Frames, timerValues: Any) -> Frames:
        new = Counter(entry_of(int(value)) for frame in rows for value in frame["value"])
        for entry, more in new.items():
            found: Any = self._counts.getValue(entry) if self._counts.containsKey(entry) else (0,)
            self._counts.updateValue(entry, (found[0] + more,))
        counts = [count[0] for _, count in self._counts.iterator()]
        yield pd.DataFrame({"key": [key[0]], "entries": [len(counts)], "n": [sum(counts)]})
