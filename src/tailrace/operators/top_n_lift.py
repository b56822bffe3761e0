"""Rows of which the best are kept, in the task: without those that are late, and no more of a key than can be kept.

Threads: a ``TopNLifter`` belongs to one task.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.operators.best_rows import best_of, order_of
from tailrace.operators.event_time import in_time
from tailrace.operators.keyed import keyed, sample
from tailrace.operators.row_lift import AnyRowLifter
from tailrace.operators.specs.top_n import TopNSpec
from tailrace.state.runs import take
from tailrace.state.table import Rows


class TopNLifter(AnyRowLifter):
    """Rows are late as they are for an aggregation: where all their windows have ended."""

    def __init__(self, spec: TopNSpec, late_before: int, combine: bool) -> None:
        super().__init__(spec)
        self._spec = spec
        self._late_before = late_before
        self._combine = combine
        self._order = order_of(spec, self._layout)

    def _in_time(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, np.ndarray | None]:
        spec = self._spec
        if spec.time_column is None:
            return batch, None
        batch, _, panes = in_time(batch, spec.time_column.name, spec.window, self._late_before, self.counts)
        return batch, panes

    def _chosen(self, rows: Rows) -> Rows:
        sample(rows, self.counts, self._spec.n)
        if not self._combine:
            return rows
        best, _ = best_of(rows, keyed(rows, self._layout), self._spec.n, self._order)
        return rows if len(best) == len(rows) else take(rows, np.sort(best), self._layout)
