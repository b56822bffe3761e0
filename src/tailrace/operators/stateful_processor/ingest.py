"""Rows for a per-key function of PySpark's, in the task: to frames, without those that are late.

Threads: a ``ProcessorIngest`` belongs to one task.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.operators.ingest.event_time import times_of
from tailrace.operators.ingest.rows import RowIngestBase
from tailrace.operators.stateful_processor.spec import StatefulProcessorSpec


class ProcessorIngest(RowIngestBase):
    """As Spark: only timers in event time make rows late, at the watermark too; a row without a time never is."""

    def __init__(self, spec: StatefulProcessorSpec, late_before: int) -> None:
        super().__init__(spec)
        self._time = spec.time_column if spec.watermarked else None
        self._filters, self._late_before = spec.filters_late, late_before

    def _in_time(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, None]:
        if self._time is None:
            return batch, None
        times, known = times_of(batch, self._time.name, self.counts)
        if not self._filters:
            return batch, None
        late = known & (times <= self._late_before)
        return self._without_late(batch, late, np.zeros(len(batch), bool)), None
