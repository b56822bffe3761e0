"""Rows for a user's function of rows and state, in the task: to frames, without those that are late.

Threads: a ``ProcessIngest`` belongs to one task.
"""

from __future__ import annotations

import pyarrow as pa

from tailrace.operators.ingest.event_time import times_of
from tailrace.operators.ingest.rows import RowIngestBase
from tailrace.operators.process.spec import ProcessSpec


class ProcessIngest(RowIngestBase):
    """Turns the batches of one task into frames of rows. With a watermark, rows without a time go like late ones."""

    def __init__(self, spec: ProcessSpec, late_before: int) -> None:
        super().__init__(spec)
        self._time = spec.time_column if spec.watermarked else None
        self._late_before = late_before

    def _in_time(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, None]:
        if self._time is None:
            return batch, None
        times, known = times_of(batch, self._time.name, self.counts)
        return self._without_late(batch, known & (times < self._late_before), ~known), None
