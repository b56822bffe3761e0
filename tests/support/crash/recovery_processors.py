"""Stateful processors of PySpark's for the recovery suite: lists, maps and timers in event time; state that expires."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from tailrace.api.checks.stateful_processor import stateful_processing
from tailrace.api.processors import TimeMode
from tailrace.api.relations import OutputMode
from tailrace.api.stream import Stream
from tailrace.spark.processors.code import processor_code
from tailrace.types import Field

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def _struct(**types: Any) -> StructType:
    return StructType([StructField(name, type_()) for name, type_ in types.items()])


OUTPUT = _struct(k=StringType, what=StringType)


class Sessions(StatefulProcessor):
    """Rows of a key until it was quiet for two seconds; a timer may put up another one."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._rows = handle.getListState("rows", _struct(v=LongType, s=StringType))
        self._texts = handle.getMapState("texts", _struct(odd=BooleanType), _struct(n=LongType, s=StringType))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self._rows.appendValue((row.v, row.s))
            odd = (row.v is not None and row.v % 2 == 1,)
            n = (self._texts.getValue(odd) or (0, None))[0]
            self._texts.updateValue(odd, (n + 1, row.s))
            for timer in list(self._handle.listTimers()):
                self._handle.deleteTimer(timer)
            if row.ts is not None:
                self._handle.registerTimer(int(row.ts.timestamp() * 1000) + 2000)
        yield Row(k=key[0], what=f"{timerValues.getCurrentWatermarkInMs()} {sorted(self._texts.iterator())}")

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        at = expiredTimerInfo.getExpiryTimeInMs()
        rows = list(self._rows.get())
        yield Row(k=key[0], what=f"{at} {timerValues.getCurrentWatermarkInMs()} {rows}")
        if len(rows) > 2:
            self._rows.put(rows[-1:])
            self._handle.registerTimer(at + 3000)
        else:
            self._rows.clear()
            self._texts.clear()


class Expiring(StatefulProcessor):
    """State that goes at different times, and timers in processing time."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._rows = handle.getListState("rows", _struct(v=LongType, s=StringType), 4_000)
        self._last = handle.getValueState("last", _struct(s=StringType), 2_000)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        before = self._last.get(), list(self._rows.get())
        for row in rows:
            self._rows.appendValue((row.v, row.s))
            self._last.update((row.s,))
        self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1_500)
        yield Row(k=key[0], what=f"{before} {sorted(self._handle.listTimers())}")

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield Row(k=key[0], what=f"{expiredTimerInfo.getExpiryTimeInMs()} {self._last.get()} {list(self._rows.get())}")


def processed(stream: Stream, keys: tuple[Field, ...], processor: object, mode: TimeMode) -> Stream:
    code = processor_code(processor, OUTPUT, mode, "UTC", pandas=False)
    made = stateful_processing(stream.source, stream.schema, stream.watermark, keys, code, OutputMode.APPEND, mode)
    return stream.derived(made)
