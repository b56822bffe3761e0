"""Rows of which the best are kept, in the task: without those that are late, and no more of a key than can be kept.

Where groups are forgotten by event time, the latest row of each is sent too, the best or not: it keeps its group.

Threads: a ``TopNIngest`` belongs to one task.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.operators.ingest.event_time import in_time, living
from tailrace.operators.ingest.rows import RowIngestBase
from tailrace.operators.rows.keyed import Keyed, keyed, sample
from tailrace.operators.rows.places import time_word
from tailrace.operators.top_n.best_rows import best_of, latest, order_of
from tailrace.operators.top_n.spec import TopNSpec
from tailrace.state.rows.arrange import take
from tailrace.state.rows.rows import Rows


class TopNIngest(RowIngestBase):
    """Rows are late as they are for an aggregation: where all their windows have ended."""

    def __init__(self, spec: TopNSpec, late_before: int, combine: bool) -> None:
        super().__init__(spec)
        self._spec = spec
        self._late_before = late_before
        self._combine = combine
        self._order = order_of(spec.rows, spec.order, spec.time_column, self._layout)

    def _in_time(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, np.ndarray | None]:
        spec = self._spec
        if spec.time_column is None:
            return batch, None
        if spec.late_by_ttl:
            return living(batch, spec.time_column.name, self._late_before, self.counts)[0], None
        batch, _, panes = in_time(batch, spec.time_column.name, spec.time_window, self._late_before, self.counts)
        return batch, panes

    def _chosen(self, rows: Rows) -> Rows:
        sample(rows, self._layout, self.counts, self._spec.n)
        if not self._combine:
            return rows
        groups = keyed(rows, self._layout)
        best, _ = best_of(rows, groups, self._spec.n, self._order)
        if self._spec.late_by_ttl:
            best = np.union1d(best, self._latest_rows(rows, groups))
        return rows if len(best) == len(rows) else take(rows, np.sort(best), self._layout)

    def _latest_rows(self, rows: Rows, groups: Keyed) -> np.ndarray:
        """Of each group a row with its largest event time."""
        times = rows.words[:, time_word(self._spec, self._layout)]
        there = np.flatnonzero(times == latest(times, groups)[groups.numbers])
        chosen = groups.firsts.copy()
        chosen[groups.numbers[there]] = there
        return chosen
