"""PySpark's per-key functions over a batch of keys: what state servers call. They travel by name, their user's code by
value.

Order of a call, as in Spark: each key's rows, then those of its timers that have come up, earliest first. A processor
is made anew for each call, and initialised and closed in it.

Threads: one call at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues
from pyspark.sql.types import StructType

from tailrace.operators.stateful_processor.batch import KeyBatch
from tailrace.operators.user_code.code import loaded
from tailrace.spark.processors.frames import FrameOutput, KeyFrames, key_values
from tailrace.spark.processors.handle import Cursor, Handle
from tailrace.spark.processors.rows import KeyRows, RowOutput, values_of
from tailrace.spark.processors.values import StateValues

GROUP_STATE = "state"
"""The one state variable of a function of a group state."""


@dataclass(frozen=True)
class ProcessorCalls:
    """A ``StatefulProcessor``. ``code``: packed. ``pandas``: whether rows are given and taken as pandas frames."""

    title: str
    code: str
    schemas: dict[str, tuple[StructType, ...]]
    output: pa.Schema
    timezone: str
    pandas: bool
    timed: bool

    @property
    def __name__(self) -> str:
        return self.title

    def __call__(self, batch: KeyBatch) -> pa.Table:
        processor: Any = loaded(self.code, self.title, "the processor")
        cursor = Cursor()
        values = {
            name: tuple(StateValues(schema, f"state {name!r}") for schema in schemas)
            for name, schemas in self.schemas.items()
        }
        processor.init(Handle(batch, cursor, values))
        output: Any = FrameOutput(self.output, self.timezone) if self.pandas else RowOutput(self.output)
        for result in self._results(processor, batch, cursor):
            output.add(result)
        cursor.key = -1
        processor.close()
        made: pa.Table = output.table()
        return made

    def _results(self, processor: Any, batch: KeyBatch, cursor: Cursor) -> Iterator[Any]:
        given: Any = (
            KeyFrames(batch.rows, self.timezone, widened=True) if self.pandas else KeyRows(batch.rows, self.timezone)
        )
        keys = key_values(batch.keys, self.timezone) if self.pandas else values_of(batch.keys, self.timezone)
        at_rows, at_timers = (
            TimerValues(batch.now, mark) if self.timed else TimerValues(-1, -1)
            for mark in (batch.watermark_of_rows, batch.watermark)
        )
        starts = batch.starts
        for number, key in enumerate(keys):
            cursor.key = number
            for first in self._initial(batch, number):
                processor.handleInitialState(key, first, at_rows)
            low, high = starts[number], starts[number + 1]
            if low < high:
                rows = given.rows(low, high)
                yield from processor.handleInputRows(key, iter((rows,)) if self.pandas else rows, at_rows)
            for at in batch.expired(number):
                yield from processor.handleExpiredTimer(key, at_timers, ExpiredTimerInfo(at))
                batch.changed_timers(number).discard(at)

    def _initial(self, batch: KeyBatch, number: int) -> list[Any]:
        """What of the initial state is a key's: its rows, or one frame of them."""
        if batch.initial is None or not batch.initial_rows[number]:
            return []
        rows = batch.initial.rows.take(batch.initial_rows[number])
        if self.pandas:
            return [KeyFrames(rows, self.timezone, widened=True).rows(0, len(rows))]
        return list(KeyRows(rows, self.timezone).rows(0, len(rows)))


@dataclass(frozen=True)
class GroupStateCalls:
    """A function of (key, frames, group state), as ``applyInPandasWithState`` takes it."""

    code: str
    state: StructType
    output: pa.Schema
    timezone: str
    timeout: str
    watermarked: bool

    @property
    def __name__(self) -> str:
        return "applyInPandasWithState"

    def __call__(self, batch: KeyBatch) -> pa.Table:
        function: Any = loaded(self.code, self.__name__, "the function")
        values = StateValues(self.state, "the group state")
        output = FrameOutput(self.output, self.timezone)
        frames = KeyFrames(batch.rows, self.timezone, widened=False)
        for number, key in enumerate(key_values(batch.keys, self.timezone, widened=False)):
            low, high = batch.starts[number], batch.starts[number + 1]
            if low < high:
                self._call(function, key, [frames.rows(low, high)], batch, number, values, output, timed_out=False)
            if batch.expired(number):
                self._call(function, key, [frames.empty], batch, number, values, output, timed_out=True)
        return output.table()

    def _call(
        self,
        function: Any,
        key: tuple[Any, ...],
        frames: list[Any],
        batch: KeyBatch,
        number: int,
        values: StateValues,
        output: FrameOutput,
        *,
        timed_out: bool,
    ) -> None:
        kept = batch.variables[GROUP_STATE]
        found = kept.read(number)
        state = GroupState(
            optionalValue=Row(*values.outward(found[0])) if found else None,  # type: ignore[arg-type]
            batchProcessingTimeMs=batch.now,
            eventTimeWatermarkMs=batch.watermark if timed_out else batch.watermark_of_rows,
            timeoutConf=self.timeout,
            hasTimedOut=timed_out,
            watermarkPresent=self.watermarked,
            defined=bool(found),
            updated=False,
            removed=False,
            timeoutTimestamp=GroupState.NO_TIMESTAMP,
            keyAsUnsafe=b"",
            valueSchema=self.state,
        )
        for frame in function(key, iter(frames), state):
            output.add(frame)
        after = _After.of(state)
        if after.unchanged:
            return  # as PySpark: a key whose function sets nothing keeps what it had, its timeout too
        kept.write(number, [values.inward(after.value)] if after.value is not None else [])
        if batch.has_timers:
            timers = batch.changed_timers(number)
            timers.clear()
            timers.update(after.timeout)


@dataclass(frozen=True)
class _After:
    """What a call left in its group state."""

    unchanged: bool
    value: tuple[Any, ...] | None
    timeout: tuple[int, ...]

    @classmethod
    def of(cls, state: GroupState) -> _After:
        left = json.loads(state.json())  # its fields have no public names
        at = int(left["timeoutTimestamp"])
        timeout = () if at == GroupState.NO_TIMESTAMP else (at,)
        changed = left["updated"] or left["removed"] or bool(timeout)
        return cls(not changed, state.getOption, timeout)
