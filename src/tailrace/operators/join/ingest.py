"""Rows of both inputs of a join, in the task: to frames, without those that are late. The counterpart of ``row_lift``.

Threads: a ``JoinIngest`` belongs to one task.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tailrace.ids import MIN_MICROS
from tailrace.operators.ingest.event_time import IngestCounts
from tailrace.operators.ingest.frame import Frame, by_shard
from tailrace.operators.ingest.key_hash import hash_program, put_hashes
from tailrace.operators.join.spec import LEFT, RIGHT, SIDE, TIME, JoinSpec
from tailrace.state.rows import columns
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.types import DataType


class JoinIngest:
    """Turns united batches (columns as ``JoinSpec`` says) into frames. Rows without a time go like late ones."""

    def __init__(self, spec: JoinSpec, late_before: int) -> None:
        self._spec = spec
        self._layout = spec.layout()
        self._hash_program = hash_program(self._layout)
        self._late_before = late_before
        self.counts = IngestCounts(times_max=[MIN_MICROS, MIN_MICROS])
        self.keep_arrivals = False

    def frame(self, batches: Sequence[pa.RecordBatch]) -> Frame:
        """The rows of these batches, sorted by shard."""
        # One batch, but for strings of more than 2 GiB together.
        whole = pa.Table.from_batches(batches).combine_chunks().to_batches()
        rows = concat_rows([self._ingest_batch(batch) for batch in whole], self._layout)
        self.counts.partials += len(rows)
        return by_shard(rows, self._spec.shards, keep_arrivals=self.keep_arrivals)

    def _ingest_batch(self, batch: pa.RecordBatch) -> Rows:
        spec, layout = self._spec, self._layout
        self.counts.rows += len(batch)
        keep = self._in_time(batch)
        if not keep.all():
            batch = batch.filter(pa.array(keep))
        builder = RowsBuilder(len(batch), layout)
        for key, key_place in zip(spec.keys, layout.keys, strict=True):
            builder.put(batch.column(key.name), key.type, key_place.word, key_place.bit)
        for row, place in zip(spec.rows, layout.accumulators, strict=True):
            builder.put(batch.column(row.name), row.type, place.word, place.bit)
        rows = builder.finish()
        put_hashes(rows, self._hash_program)
        return rows

    def _in_time(self, batch: pa.RecordBatch) -> np.ndarray:
        """Which rows may still match, or be emitted."""
        spec, array = self._spec, batch.column(TIME)
        known = columns.valid_mask(array)
        times = columns.fixed_words(array, spec.time_type, known)
        if not spec.timed:
            return np.ones(len(batch), bool)
        known = np.ones(len(batch), bool) if known is None else known
        right = columns.fixed_words(batch.column(SIDE), DataType("boolean"), None) == RIGHT
        for side in (LEFT, RIGHT):
            seen = times[known & (right == side)]
            if len(seen):
                self.counts.saw(side, int(seen.min()), int(seen.max()), f"join {spec.name}")
        if spec.window is None:
            late = known & (times < self._late_before)
        else:
            late = known & (spec.window.last_ends(times) <= self._late_before)
        self.counts.leave_out(batch, late, ~known)
        keep: np.ndarray = known & ~late
        return keep
