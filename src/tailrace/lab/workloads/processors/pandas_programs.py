"""The programs of ``programs`` with pandas frames, for ``transformWithStateInPandas``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from tailrace.lab.workloads.processors import programs
from tailrace.lab.workloads.processors.programs import SESSION, SESSION_GAP_MS

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


class Buffer(programs.Buffer):
    def handleInputRows(self, key: Any, rows: Frames, timerValues: Any) -> Frames:  # type: ignore[override, unused-ignore]
        for n, total in self._buffered([int(value) for frame in rows for value in frame["value"]]):
            yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})


class Maps(programs.Maps):
    def handleInputRows(self, key: Any, rows: Frames, timerValues: Any) -> Frames:  # type: ignore[override, unused-ignore]
        counts = self._counted(int(value) for frame in rows for value in frame["value"])
        yield pd.DataFrame({"key": [key[0]], "entries": [len(counts)], "n": [sum(counts)]})
