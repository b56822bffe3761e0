"""Rows for a lookup table, in the task: whole and all of them, however late.

Threads: a ``LookupLifter`` belongs to one task.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.operators.ingest.rows import RowIngestBase
from tailrace.operators.lookup.spec import LookupSpec
from tailrace.state.rows import columns


class LookupIngest(RowIngestBase):
    def __init__(self, spec: LookupSpec) -> None:
        super().__init__(spec)
        self._spec = spec

    def _in_time(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, np.ndarray | None]:
        column = self._spec.time_column
        if column is not None:
            array = batch.column(column.name)
            known = columns.valid_mask(array)
            times = columns.fixed_words(array, column.type, known)
            times = times if known is None else times[known]
            if len(times):
                self.counts.saw(0, int(times.min()), int(times.max()), f"column {column.name}")
        return batch, None
