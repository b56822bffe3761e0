"""A stateful processor with timers among the queries that are killed.

Its oracle is its operator by itself, without any disturbance (``tailrace.testing.ProcessorTester``).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from tailrace.testing import ProcessorTester
from tailrace.testing.spark_types import spark_schema

OUTPUT = "auction bigint, bids bigint, due bigint"
QUIET_MS = 2_000

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # state servers have no folder of tests


class QuietAuctions(StatefulProcessor):
    """Bids of an auction so far, and once more when it was quiet for two seconds; then it is forgotten."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._bids = handle.getValueState("bids", "n bigint, last bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        bids, last = self._bids.get() or (0, 0)
        for row in rows:
            bids, last = bids + 1, max(last, int(row.ts.timestamp() * 1000))
        self._bids.update((bids, last))
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        self._handle.registerTimer(last + QUIET_MS)
        yield Row(auction=key[0], bids=bids, due=None)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield Row(auction=key[0], bids=self._bids.get()[0], due=expiredTimerInfo.getExpiryTimeInMs())
        self._bids.clear()


def undisturbed(tables: tuple[pa.Table, ...], delay: str) -> Iterator[Counter[Any]]:
    """The rows of each epoch."""
    tester = ProcessorTester(
        QuietAuctions(),
        spark_schema(tables[0].schema),
        OUTPUT,
        keys=["auction"],
        timeMode="EventTime",
        eventTime="ts",
        delay=delay,
    )
    for table in tables:
        yield Counter(tuple(row.values()) for row in tester.batch(table))
