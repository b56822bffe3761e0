"""Rows of both inputs of a join, in the task: to frames, without those that are late.

Threads: a ``JoinIngest`` belongs to one task.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.ids import MIN_MICROS
from tailrace.operators.ingest.rows import RowIngestBase
from tailrace.operators.join.spec import LEFT, RIGHT, JoinSpec
from tailrace.operators.spec import SIDE, TIME
from tailrace.state.rows import columns
from tailrace.types import DataType


class JoinIngest(RowIngestBase):
    """Turns united batches (columns as ``JoinSpec`` says) into frames. Rows without a time go like late ones."""

    def __init__(self, spec: JoinSpec, late_before: int) -> None:
        super().__init__(spec)
        self._spec = spec
        self._late_before = late_before
        self._from_streams = np.array([not each for each in spec.handed_over])
        self.counts.times_max = [MIN_MICROS, MIN_MICROS]

    def _in_time(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, None]:
        """The rows that may still match, or be emitted."""
        spec, array = self._spec, batch.column(TIME)
        if not spec.timed:
            return batch, None
        valid = columns.valid_mask(array)
        times = columns.fixed_words(array, spec.time_type, valid)
        known = np.ones(len(batch), bool) if valid is None else valid
        right = columns.fixed_words(batch.column(SIDE), DataType("boolean"), None) == RIGHT
        for side in (LEFT, RIGHT):
            seen = times[known & (right == side)]
            if len(seen):
                self.counts.saw(side, int(seen.min()), int(seen.max()), f"join {spec.name}")
        if spec.window is None:
            late = times < self._late_before
            late |= (times == self._late_before) & self._from_streams[right.astype(np.int64)]
        else:
            late = spec.window.last_ends(times) <= self._late_before
        return self._without_late(batch, known & late, ~known), None
