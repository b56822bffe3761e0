"""Stateful processors of a user's, and what they give in Spark and in Tailrace over the same batches."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import tailrace as tr
from tailrace.testing import ScriptedSource

SCHEMA = pa.schema(
    {"k": pa.string(), "v": pa.int64(), "x": pa.float64(), "d": pa.date32(), "ts": pa.timestamp("us", "UTC")}
)
START = datetime(2026, 1, 1, tzinfo=UTC)
OUTPUT = "k string, n bigint, what string, at timestamp"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Spark's workers have no folder of tests

Rows = list[tuple[Any, ...]]


def batch(*rows: tuple[Any, ...]) -> pa.Table:
    """Rows of (key, value, seconds after the start)."""
    made = [
        {"k": k, "v": v, "x": None if v is None else v / 4, "d": START.date(), "ts": START + timedelta(seconds=s)}
        for k, v, s in rows
    ]
    return pa.Table.from_pylist(made, SCHEMA)


BATCHES = (
    batch(("a", 1, 0), ("a", 2, 1), ("b", None, 2), (None, 5, 2)),
    batch(("a", 4, 3), ("c", 5, 10), ("b", 7, 11)),
    batch(("c", 6, 20), ("a", -3, 20), ("b", 8, 12), ("d", 1, 21)),
    batch(("d", 7, 30), ("a", 9, 1), ("a", 10, 19), (None, 3, 30)),
    batch(("e", 1, 60)),
    batch(("a", 2, 61), ("c", None, 62)),
)


class RunningCount(StatefulProcessor):
    """Counts rows and keeps a newest value of several types."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n bigint")
        self._last = handle.getValueState("last", "v bigint, x double, d date, at timestamp, s string")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        count = self._count.get()[0] if self._count.exists() else 0
        before = self._last.get()
        newest = None
        for row in rows:
            count += 1
            newest = row if newest is None or row.ts > newest.ts else newest
        self._count.update((count,))
        self._last.update((newest.v, newest.x, newest.d, newest.ts, f"{newest.v}"))
        if count == 4:
            self._count.clear()
        yield Row(k=key[0], n=count, what=repr(before), at=newest.ts)


class Numbered(StatefulProcessor):
    """Each row with its number among those of its key, and its time."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        count = (self._count.get() or (0,))[0]
        for row in rows:
            count += 1
            yield Row(who=key[0], number=count, at=row.ts)
        self._count.update((count,))


class BegunCount(RunningCount):
    """Counts on from an initial state."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self._handle = handle

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        row = initialState if isinstance(initialState, Row) else initialState.iloc[0]
        self._count.update((int(row["n"]),))
        self._last.update((int(row["n"]), None, None, None, str(key)))
        self._handle.registerTimer(1767225620000 + int(row["n"]))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        said = f"{expiredTimerInfo.getExpiryTimeInMs()} {self._last.get()}"
        yield Row(k=key[0], n=-self._count.get()[0] if self._count.exists() else None, what=said, at=None)


class Sessions(StatefulProcessor):
    """Gives a session's rows five seconds after its last one, and tells of all timers."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._rows = handle.getListState("rows", "v bigint, at bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            at = int(row.ts.timestamp() * 1000)
            self._rows.appendValue((row.v, at))
            for timer in sorted(self._handle.listTimers()):
                if timer < at + 5000:
                    self._handle.deleteTimer(timer)
            self._handle.registerTimer(at + 5000)
        said = f"{timerValues.getCurrentWatermarkInMs()} {sorted(self._handle.listTimers())}"
        yield Row(k=key[0], n=len(list(self._rows.get())), what=said, at=None)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        rows = sorted(self._rows.get(), key=str)
        if len(rows) > 1:
            self._rows.put(rows[:1])
            self._handle.registerTimer(expiredTimerInfo.getExpiryTimeInMs() + 7000)
        else:
            self._rows.clear()
        said = f"{expiredTimerInfo.getExpiryTimeInMs()} {timerValues.getCurrentWatermarkInMs()} {rows}"
        yield Row(k=key[0], n=-len(rows), what=said, at=None)


class Buffer(StatefulProcessor):
    """A list that is given when it has three rows, and is never looked at before: by one state it counts."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._rows = handle.getListState("rows", "v bigint, s string")
        self._count = handle.getValueState("count", "n int")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        count = (self._count.get() or (0,))[0]
        for frame in rows:
            values = [(None if pd.isna(v) else int(v), str(d)) for v, d in zip(frame["v"], frame["d"], strict=True)]
            self._rows.appendList(values)
            count += len(values)
        if count >= 3:
            given = sorted(self._rows.get(), key=str)
            yield pd.DataFrame({"k": [key[0]], "n": [len(given)], "what": [repr(given)], "at": [pd.NaT]})
            self._rows.clear()
            count = 0
        self._count.update((count,))


class Maps(StatefulProcessor):
    """A map of counts by (parity, day) that its user changes in every way."""

    ttl: int | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._map = handle.getMapState("map", "odd boolean, d date", "n bigint, last timestamp", self.ttl)
        self._list = handle.getListState("list", "v bigint", self.ttl)
        self._value = handle.getValueState("value", "v bigint", self.ttl)
        self._kept = handle.getValueState("kept", "n bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        before = [self._map.exists(), self._list.exists(), self._value.exists(), self._value.get(), self._kept.get()]
        before += [sorted(self._map.keys()), sorted(self._map.values()), list(self._list.get())]
        count = 0
        for row in rows:
            count += 1
            at = (row.v is not None and row.v % 2 == 1, row.d)
            found = self._map.getValue(at) if self._map.containsKey(at) else (0, None)
            self._map.updateValue(at, (found[0] + 1, row.ts))
            if row.v == 10:
                self._map.removeKey(at)
            if row.v == 7:
                self._list.clear()
            self._list.appendValue((row.v,))
            self._value.update((row.v,))
        self._kept.update(((self._kept.get() or (0,))[0] + count,))
        if row.v == 8:
            self._map.clear()
        yield Row(k=key[0], n=count, what=f"{before} {sorted(self._map.iterator())}", at=None)


class ExpiringMaps(Maps):
    ttl = 1


class LastingMaps(Maps):
    ttl = 3_600_000


class Alarms(StatefulProcessor):
    """Timers in processing time: one that comes up in the next batch, one that does not."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._count = handle.getValueState("count", "n bigint", 3_600_000)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        now = timerValues.getCurrentProcessingTimeInMs()
        count = (self._count.get() or (0,))[0] + sum(len(frame) for frame in rows)
        self._count.update((count,))
        self._handle.registerTimer(now + 1)
        self._handle.registerTimer(now + 3_600_000)
        what = f"{len(list(self._handle.listTimers()))} {timerValues.getCurrentWatermarkInMs()}"
        yield pd.DataFrame({"k": [key[0]], "n": [count], "what": [what], "at": [None]})

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        assert expiredTimerInfo.getExpiryTimeInMs() <= timerValues.getCurrentProcessingTimeInMs()
        for timer in sorted(self._handle.listTimers())[1:3]:
            self._handle.deleteTimer(timer)
        count = self._count.get()[0]
        yield pd.DataFrame({"n": [-count], "k": [key[0]], "what": ["timer"], "at": [None]})


def counted(key: Any, frames: Any, state: Any) -> Iterator[pd.DataFrame]:
    """Counts rows; a key that was quiet gives its count once more."""
    if state.hasTimedOut:
        said = [len(frame) for frame in frames]
        yield pd.DataFrame({"k": [key[0]], "n": [state.get[0]], "what": [f"timeout {said} {state.get}"], "at": [None]})
        if state.get[0] > 3:
            state.remove()
        elif state.get[0] == 2:
            state.update((state.get[0], "again"))
            state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 1000)
        return
    count, more, newest = 0, [], 0
    for frame in frames:
        count += len(frame)
        more += [str(v) for v in frame["v"]]
        newest = max([newest, *(int(at.timestamp() * 1000) for at in frame["ts"])])
    before = state.getOption
    state.update((count + (before[0] if before else 0), ",".join(sorted(more))))
    if count != 3:
        state.setTimeoutTimestamp(max(newest + 5000, state.getCurrentWatermarkMs()))
    what = f"{before} {state.getCurrentWatermarkMs()}"
    yield pd.DataFrame({"k": [key[0]], "n": [state.get[0]], "what": [what], "at": [None]})


def hurried(key: Any, frames: Any, state: Any) -> Iterator[pd.DataFrame]:
    """Times out in the next batch, by processing time, unless the key has rows in it."""
    if state.hasTimedOut:
        yield pd.DataFrame({"k": [key[0]], "n": [-state.get[0]], "what": ["timeout"], "at": [None]})
        if state.get[0] % 2:
            state.remove()
        return
    count = sum(len(frame) for frame in frames) + (state.getOption or (0,))[0]
    state.update((count,))
    state.setTimeoutDuration(1 if key[0] != "a" else 3_600_000)
    yield pd.DataFrame({"k": [key[0]], "n": [count], "what": [""], "at": [None]})


def grouped(engine: str, source: ScriptedSource, spark: SparkSession) -> Any:
    frame = source.stream(spark)
    stream: Any = tr.stream(frame) if engine == "tailrace" else frame
    return stream.withWatermark("ts", "1 second").groupBy("k")


def run(
    engine: str, spark: SparkSession, path: Path, make: Any, mode: str, parts: tuple[tuple[pa.Table, ...], ...]
) -> dict[int, Rows]:
    """The rows of each epoch. ``make``: from grouped rows to a stream. ``parts``: each in a run of its own.

    ``engine``: ``spark``, ``tailrace``, or ``plain``, Spark's own query through ``tailrace.writeStream``.
    """
    source = ScriptedSource(path / "in", SCHEMA)
    output: dict[int, Rows] = {}

    def save(rows: DataFrame, epoch: int) -> None:
        output[epoch] = sorted((tuple(row) for row in rows.collect()), key=str)

    for part in parts:
        source.add(part)
        made = make(grouped(engine, source, spark))
        writer: Any = tr.writeStream(made, fallback=False) if engine == "plain" else made.writeStream
        writer = writer.outputMode(mode).foreachBatch(save)
        if engine != "spark":
            writer = writer.option("watermark", "spark")
        query = writer.option("checkpointLocation", str(path / "check")).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
    return output
