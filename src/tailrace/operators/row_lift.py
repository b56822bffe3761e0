"""Rows as they are, in the task: for operators that keep every row. The counterpart of ``lift``.

Threads: a ``RowLifter`` belongs to one task.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tailrace.operators.event_time import LiftCounts, in_time
from tailrace.operators.frame import Frame, by_shard
from tailrace.operators.key_hash import hash_program, put_hashes
from tailrace.operators.specs.aggregate import AggregateSpec
from tailrace.state.layout import PANE
from tailrace.state.sections import RowsBuilder
from tailrace.state.table import Rows, concat_rows


class RowLifter:
    """Turns the batches of one task into frames of rows. Rows are late as they are for a ``Lifter``."""

    def __init__(self, spec: AggregateSpec, late_before: int) -> None:
        self._spec = spec
        self._layout = spec.layout()
        self._hash_program = hash_program(self._layout)
        self._late_before = late_before
        self.counts = LiftCounts()

    def frame(self, batches: Sequence[pa.RecordBatch]) -> Frame:
        """The rows of these batches, sorted by shard."""
        # One batch, but for strings of more than 2 GiB together.
        whole = pa.Table.from_batches(batches).combine_chunks().to_batches()
        rows = concat_rows([self._lift(batch) for batch in whole], self._layout)
        self.counts.partials += len(rows)
        return by_shard(rows, self._spec.shards)

    def _lift(self, batch: pa.RecordBatch) -> Rows:
        spec, layout = self._spec, self._layout
        self.counts.rows += len(batch)
        panes = None
        if spec.time_column is not None:
            batch, _, panes = in_time(
                batch, spec.time_column.name, spec.window, self._late_before, self.counts, spec.session_gap
            )
        builder = RowsBuilder(len(batch), layout)
        if panes is not None:
            builder.words[:, PANE] = panes
        for key, place in zip(spec.keys, layout.keys, strict=True):
            builder.put(batch.column(key.name), key.type, place.word, place.bit)
        for row, value in zip(spec.rows, layout.accumulators, strict=True):
            builder.put(batch.column(row.name), row.type, value.word, value.bit)
        rows = builder.finish()
        put_hashes(rows, self._hash_program)
        return rows
