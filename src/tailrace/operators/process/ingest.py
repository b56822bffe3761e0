"""Rows for a user's function of rows and state, in the task: to frames, without those that are late.

Threads: a ``ProcessIngest`` belongs to one task.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tailrace.operators.ingest.event_time import IngestCounts
from tailrace.operators.ingest.frame import Frame, by_shard
from tailrace.operators.ingest.key_hash import hash_program, put_hashes
from tailrace.operators.process.spec import ProcessSpec
from tailrace.state.rows import columns
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.rows.rows import Rows, concat_rows


class ProcessIngest:
    """Turns the batches of one task into frames of rows. With a watermark, rows without a time go like late ones."""

    def __init__(self, spec: ProcessSpec, late_before: int) -> None:
        self._spec = spec
        self._layout = spec.layout()
        self._hash_program = hash_program(self._layout)
        self._late_before = late_before
        self.counts = IngestCounts()
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
        if spec.time_column is not None and spec.watermarked:
            batch = self._in_time(batch, spec.time_column.name)
        builder = RowsBuilder(len(batch), layout)
        for key, key_place in zip(spec.keys, layout.keys, strict=True):
            builder.put(batch.column(key.name), key.type, key_place.word, key_place.bit)
        for row, place in zip(spec.rows, layout.accumulators, strict=True):
            builder.put(batch.column(row.name), row.type, place.word, place.bit)
        rows = builder.finish()
        put_hashes(rows, self._hash_program)
        return rows

    def _in_time(self, batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
        spec, array = self._spec, batch.column(name)
        assert spec.time_column is not None
        valid = columns.valid_mask(array)
        times = columns.fixed_words(array, spec.time_column.type, valid)
        known = np.ones(len(batch), bool) if valid is None else valid
        if known.any():
            self.counts.saw(0, int(times[known].min()), int(times[known].max()), f"column {name}")
        late = known & (times < self._late_before)
        self.counts.leave_out(batch, late, ~known)
        keep = known & ~late
        return batch if keep.all() else batch.filter(pa.array(keep))
