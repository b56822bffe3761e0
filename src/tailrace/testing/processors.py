"""A stateful processor, or a function of a group state, on rows of a test: no query, no Spark session, no JVM.

The rows go through the operator that a state server runs, so that state, timers and time-to-live are the engine's own;
PySpark's ``TwsTester`` knows no time-to-live. Time stands still between two batches, and is what the test says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from tailrace.api.checks.stateful_processor import stateful_processing, time_mode_of
from tailrace.api.columns import resolve
from tailrace.api.duration import Duration, parse_duration
from tailrace.api.processors import ProcessorCode, TimeMode
from tailrace.api.relations import OutputMode, Watermark
from tailrace.ids import MIN_MICROS
from tailrace.operators.output import schema_of
from tailrace.operators.registry import ingest_of, operator_with, plan_operator
from tailrace.operators.resources import Resources
from tailrace.spark.processors.code import TIMEOUTS, group_state_code, processor_code
from tailrace.spark.sources.schema import fields_of
from tailrace.testing.schemas import struct_of


class ProcessorTester:
    """Runs a processor batch by batch. Schemas are PySpark's, or texts of plain types ("user string, n bigint").

    >>> from pyspark.sql import Row
    >>> from pyspark.sql.streaming import StatefulProcessor
    >>> class Pages(StatefulProcessor):
    ...     def init(self, handle):
    ...         self.pages = handle.getListState("pages", "page string")
    ...     def handleInputRows(self, key, rows, timerValues):
    ...         self.pages.appendList([(row.page,) for row in rows])
    ...         yield Row(user=key[0], pages="".join(page for (page,) in self.pages.get()))
    >>> tester = ProcessorTester(Pages(), "user string, page string", "user string, pages string", keys=["user"])
    >>> tester.batch([{"user": "ann", "page": "a"}, {"user": "ann", "page": "b"}])
    [{'user': 'ann', 'pages': 'ab'}]
    >>> tester.batch([{"user": "ann", "page": "c"}])
    [{'user': 'ann', 'pages': 'abc'}]
    """

    def __init__(
        self,
        processor: object,
        rows: object,
        output: object,
        *,
        keys: Sequence[str],
        timeMode: str = "None",
        eventTime: str | None = None,
        delay: Duration = "0 seconds",
        pandas: bool = False,
        timezone: str = "UTC",
    ) -> None:
        mode = time_mode_of(timeMode, "ProcessorTester")
        code = processor_code(processor, output, mode, timezone, pandas=pandas, parse=struct_of)
        self._open(code, rows, keys, mode, eventTime, delay, timeouts=False)

    @classmethod
    def of_function(
        cls,
        func: Callable[..., object],
        rows: object,
        output: object,
        state: object,
        *,
        keys: Sequence[str],
        timeoutConf: str = "NoTimeout",
        eventTime: str | None = None,
        delay: Duration = "0 seconds",
        timezone: str = "UTC",
    ) -> ProcessorTester:
        """Of a function that ``applyInPandasWithState`` takes."""
        code = group_state_code(
            func, output, state, timeoutConf, timezone, watermarked=eventTime is not None, parse=struct_of
        )
        made = cls.__new__(cls)
        mode = TIMEOUTS[timeoutConf]
        made._open(code, rows, keys, mode, eventTime, delay, timeouts=mode is not TimeMode.NONE)
        return made

    def _open(
        self,
        code: ProcessorCode,
        rows: object,
        keys: Sequence[str],
        mode: TimeMode,
        event_time: str | None,
        delay: Duration,
        *,
        timeouts: bool,
    ) -> None:
        fields = fields_of(struct_of(rows))
        watermark, self._delay = None, 0
        if event_time is not None:
            self._delay = parse_duration(delay, "ProcessorTester: delay", zero_ok=True)
            watermark = Watermark(resolve(event_time, fields, "ProcessorTester: eventTime"), self._delay)
        by = tuple(resolve(key, fields, "ProcessorTester: keys") for key in keys)
        relation = stateful_processing(
            "rows of a test", fields, watermark, by, code, OutputMode.APPEND, mode, timeouts=timeouts
        )
        self._spec = plan_operator(relation, OutputMode.APPEND, 0, 1)
        self._operator: Any = operator_with(self._spec, [0], Resources(threads=1))
        self._schema = schema_of(fields)
        self._types = {field.name: field.type for field in fields}
        self._epoch = -1
        self._mark = self._newest = int(MIN_MICROS)
        self._now = datetime(1970, 1, 1, tzinfo=UTC)

    @property
    def watermark(self) -> datetime | None:
        """As of the last batch."""
        return None if self._mark == MIN_MICROS else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(0, 0, self._mark)

    def batch(
        self, rows: Iterable[Mapping[str, Any]] | pa.Table = (), now: datetime | None = None
    ) -> list[dict[str, Any]]:
        """What the processor gives for an epoch with these rows, which begins at ``now``; that of the last one if None.

        Rows come as mappings, or as a table; what is not named is null. First all rows are handled, then the timers
        that have come up: in event time by the watermark with these rows, in processing time by ``now``.
        """
        if now is not None:
            self._now = now if now.tzinfo is not None else now.replace(tzinfo=UTC)
        self._epoch += 1
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows), self._schema)
        late_before = self._mark
        ingest = ingest_of(self._spec, late_before, False, self._types, self._epoch)
        batches = table.select(self._schema.names).cast(self._schema).combine_chunks().to_batches()
        frames = [ingest.frame(batches)] if batches else []
        self._newest = max(self._newest, *ingest.counts.times_max)
        if self._newest != MIN_MICROS:
            self._mark = max(self._mark, self._newest - self._delay)
        now_micros = int((self._now - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))
        self._operator.set_times(now_micros, int(MIN_MICROS))
        self._operator.apply(self._epoch, frames)
        try:
            made = self._operator.advance(self._epoch, late_before, self._mark)
        except BaseException:
            self._operator.undo(self._epoch)
            self._mark, self._epoch = late_before, self._epoch - 1
            raise
        self._operator.forget(self._epoch)
        return [row for batch in made for row in batch.to_pylist()]

    @property
    def keys_kept(self) -> int:
        """Keys that have state or timers."""
        return int(self._operator.rows)
