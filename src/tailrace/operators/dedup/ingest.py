"""Rows of which duplicates are dropped, in the task: without those that are late, and one of each key where that pays.

Threads: a ``DedupIngest`` belongs to one task.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.operators.dedup.spec import DeduplicateSpec
from tailrace.operators.ingest.event_time import times_of
from tailrace.operators.ingest.rows import RowIngestBase
from tailrace.operators.rows.keyed import earliest, keyed, sample
from tailrace.operators.rows.places import time_place
from tailrace.state.rows.arrange import take
from tailrace.state.rows.rows import Rows


class DedupIngest(RowIngestBase):
    def __init__(self, spec: DeduplicateSpec, late_before: int, combine: bool) -> None:
        super().__init__(spec)
        self._spec = spec
        self._late_before = spec.mark(late_before)
        self._combine = combine
        self._time = time_place(spec, self._layout)

    def _in_time(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, None]:
        """A row without an event time is never late, as in Spark."""
        column = self._spec.time_column
        if column is None:
            return batch, None
        times, known = times_of(batch, column.name, self.counts)
        if not self._spec.watermarked:
            return batch, None
        return self._without_late(batch, known & (times <= self._late_before), np.zeros(len(batch), bool)), None

    def _chosen(self, rows: Rows) -> Rows:
        sample(rows, self._layout, self.counts)
        if not self._combine:
            return rows
        chosen = earliest(rows, keyed(rows, self._layout), self._time)
        # In the order in which they came, by which servers choose the first.
        return rows if len(chosen) == len(rows) else take(rows, np.sort(chosen), self._layout)
