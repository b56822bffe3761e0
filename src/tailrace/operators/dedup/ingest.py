"""Rows of which duplicates are dropped, in the task: without those that are late, and one of each key where that pays.

Threads: a ``DedupIngest`` belongs to one task.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.operators.dedup.spec import DeduplicateSpec
from tailrace.operators.ingest.rows import RowIngestBase
from tailrace.operators.rows.keyed import earliest, keyed, sample
from tailrace.operators.rows.places import time_place
from tailrace.state.rows import columns
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
        array = batch.column(column.name)
        known = columns.valid_mask(array)
        times = columns.fixed_words(array, column.type, known)
        timed = np.ones(len(batch), bool) if known is None else known
        seen = times[timed]
        if len(seen):
            self.counts.saw(0, int(seen.min()), int(seen.max()), f"column {column.name}")
        late = timed & (times <= self._late_before) if self._spec.watermarked else np.zeros(len(batch), bool)
        if not late.any():
            return batch, None
        self.counts.leave_out(batch, late, np.zeros(len(batch), bool))
        return batch.filter(pa.array(~late)), None

    def _chosen(self, rows: Rows) -> Rows:
        sample(rows, self._layout, self.counts)
        if not self._combine:
            return rows
        chosen = earliest(rows, keyed(rows, self._layout), self._time)
        # In the order in which they came, by which servers choose the first.
        return rows if len(chosen) == len(rows) else take(rows, np.sort(chosen), self._layout)
