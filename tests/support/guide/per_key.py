"""Functions of a user's for each key: sessions that time out, and a device that falls silent."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from support.guide import data
from support.guide.program import Frames, Program

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Spark's workers have no folder of tests

_TIMEOUT_MS = 20
_SILENT_MS = 45_000


def _session(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Counts the words of a session, and gives the session when no more have come for a while."""
    if state.hasTimedOut:
        count, start, end = state.get
        state.remove()
        yield pd.DataFrame({"sessionId": [key[0]], "count": [count], "start": [start], "end": [end]})
        return
    times = pd.concat([frame["timestamp"] for frame in frames])
    count, start, end = len(times), times.min(), times.max()
    if state.exists:
        before, start, last = state.get
        count, end = count + before, max(end, last)
    state.update((count, start, end))
    state.setTimeoutDuration(_TIMEOUT_MS)
    yield pd.DataFrame()


def _timed_out_sessions(frames: Frames) -> DataFrame:
    events = frames["lines"].select(F.explode(F.split("value", " ")).alias("sessionId"), "timestamp")
    return events.groupBy("sessionId").applyInPandasWithState(
        _session,
        "sessionId string, count long, start timestamp, end timestamp",
        "count long, start timestamp, end timestamp",
        "Update",
        GroupStateTimeout.ProcessingTimeTimeout,
    )


class _Silence(StatefulProcessor):
    """Says when a device was heard, and for how long it has not been."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._heard = handle.getValueState("heard", "at_ms bigint")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        newest = max(int(at.timestamp() * 1000) for frame in rows for at in frame["time"].dt.tz_localize("UTC"))
        if self._heard.exists():
            newest = max(newest, self._heard.get()[0])
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        self._heard.update((newest,))
        self._handle.registerTimer(newest + _SILENT_MS)
        yield pd.DataFrame({"device": [key[0]], "what": ["heard"], "ms": [newest]})

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        silent = expiredTimerInfo.getExpiryTimeInMs() - self._heard.get()[0]
        self._heard.clear()
        yield pd.DataFrame({"device": [key[0]], "what": ["silent"], "ms": [silent]})


def _silence(frames: Frames) -> DataFrame:
    heard = frames["devices"].withWatermark("time", "10 seconds").groupBy("device")
    return heard.transformWithStateInPandas(_Silence(), "device string, what string, ms bigint", "Append", "EventTime")


PROGRAMS = (
    Program(
        "sessions that time out",
        "structured_network_wordcount_session_window.py",
        "update",
        {"lines": data.lines()},
        _timed_out_sessions,
        f"files instead of a socket, each in a run of its own; {_TIMEOUT_MS} ms instead of 10 s",
        keys=("sessionId", "start", "count"),
        runs=True,
    ),
    Program(
        "devices that fall silent",
        "transformWithState: Putting it all together",
        "append",
        {"devices": data.devices()},
        _silence,
        "event time instead of the clock's, so that two engines can say the same",
        confs={
            "spark.sql.streaming.stateStore.providerClass": (
                "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
            )
        },
    ),
)
