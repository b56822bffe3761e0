"""Where a task's rows belong: their panes, and where windows are a user's own, also where these start.

Rows that are late, or of no window for want of a time, are left out here and counted. Whole Arrow batches at a time.
What stays becomes partials (``partials``), or is sent as it is (``RowIngest``).

Threads: an object belongs to one task.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.ingest.event_time import IngestCounts, in_time, living, times_of, until_ends
from tailrace.operators.ingest.rows import Placed, RowIngestBase
from tailrace.operators.user_code.windows import Assigner
from tailrace.operators.windows.session_window import SessionWindowSpec
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.state.rows.rows import Rows


class Placer:
    """``late_before``: a row whose last window ended at or before it is late. ``epoch``: for what is said of errors."""

    def __init__(self, spec: AggregateSpec, late_before: int, epoch: int | None, counts: IngestCounts) -> None:
        self._spec = spec
        self._late_before = late_before
        self._counts = counts
        self._assigner = None if spec.custom_window is None else Assigner(spec, epoch)

    def placed(self, batch: pa.RecordBatch) -> Placed:
        spec = self._spec
        if spec.time_column is None:
            return Placed(batch)
        name = spec.time_column.name
        if self._assigner is not None:
            return self._assigned(batch, name, self._assigner)
        if spec.count_window is not None and spec.watermarked and not spec.late_by_ttl:
            return self._counted(batch, name)
        if spec.late_by_ttl:
            return Placed(*living(batch, name, self._late_before, self._counts))
        if spec.dynamic_session is not None:
            return Placed(*until_ends(batch, name, spec.dynamic_session.ends, self._late_before, self._counts))
        # Windows by count that no watermark makes late, and none at all, have no panes.
        window = spec.window if isinstance(spec.window, TimeWindowSpec | SessionWindowSpec) else None
        return Placed(*in_time(batch, name, window, self._late_before, self._counts))

    def _assigned(self, batch: pa.RecordBatch, name: str, assigner: Assigner) -> Placed:
        """Rows by the user's windows: late where their own has ended."""
        times, known = times_of(batch, name, self._counts)
        starts, ends = np.zeros(len(batch), np.int64), np.zeros(len(batch), np.int64)
        starts[known], ends[known] = assigner.windows(times[known])
        late = known & (ends <= self._late_before)
        chosen = self._stay(batch, late, known)
        return Placed(batch.take(pa.array(chosen)), times[chosen], ends[chosen], starts[chosen])

    def _counted(self, batch: pa.RecordBatch, name: str) -> Placed:
        """Windows by count with an event time: rows before the watermark would make windows too old for others."""
        times, known = times_of(batch, name, self._counts)
        chosen = self._stay(batch, known & (times < self._late_before), known)
        return Placed(batch.take(pa.array(chosen)), times[chosen])

    def _stay(self, batch: pa.RecordBatch, late: np.ndarray, known: np.ndarray) -> np.ndarray:
        self._counts.leave_out(batch, late, ~known)
        return np.flatnonzero(known & ~late)


class RowIngest(RowIngestBase):
    """For operators that keep every row of a window. Rows are late as they are for partial aggregates."""

    def __init__(self, spec: AggregateSpec, late_before: int, epoch: int | None = None) -> None:
        super().__init__(spec)
        self._placer = Placer(spec, late_before, epoch, self.counts)

    def _ingest_batch(self, batch: pa.RecordBatch) -> Rows:
        self.counts.rows += len(batch)
        return self._built(self._placer.placed(batch))
