"""Rows as they are, in the task: for operators that keep rows, or pass them on.

Threads: an ingest belongs to one task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from tailrace.operators.ingest.event_time import IngestCounts, times_of
from tailrace.operators.ingest.frame import Frame, by_shard
from tailrace.operators.ingest.key_hash import hash_program, put_hashes
from tailrace.operators.spec import SentRows
from tailrace.state.layout import PANE, RecordLayout
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.types import Field


class RowSpec(SentRows, Protocol):
    @property
    def shards(self) -> int: ...
    def layout(self) -> RecordLayout: ...


@dataclass(frozen=True)
class Placed:
    """Rows that stay; their times, panes and starts of windows, where they have such."""

    batch: pa.RecordBatch
    times: np.ndarray | None = None
    panes: np.ndarray | None = None
    starts: np.ndarray | None = None

    def put(self, builder: RowsBuilder, keys: Sequence[Field], layout: RecordLayout) -> None:
        """The panes and the keys."""
        if self.panes is not None:
            builder.words[:, PANE] = self.panes
        for key, place in zip(keys, layout.keys, strict=False):
            builder.put(self.batch.column(key.name), key.type, place.word, place.bit)
        if self.starts is not None:
            place = layout.keys[-1]
            builder.words[:, place.word] = self.starts
            builder.set_bit(place.bit, None)


class RowIngestBase:
    """Turns the batches of one task into frames of rows. Which rows are late, and which are sent, others say."""

    def __init__(self, sent: RowSpec) -> None:
        self._sent = sent
        self._layout = sent.layout()
        self._hash_program = hash_program(self._layout, len(sent.keys))
        self.counts = IngestCounts()
        self.keep_arrivals = False

    def _in_time(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, np.ndarray | None]:
        """The rows that are not late, and their panes."""
        raise NotImplementedError

    def _without_late(self, batch: pa.RecordBatch, late: np.ndarray, untimed: np.ndarray) -> pa.RecordBatch:
        """Count rows that are late, and those left out for want of an event time; give the others."""
        self.counts.leave_out(batch, late, untimed)
        keep = ~(late | untimed)
        return batch if keep.all() else batch.filter(pa.array(keep))

    def _chosen(self, rows: Rows) -> Rows:
        """What of a chunk's rows is sent."""
        return rows

    def frame(self, batches: Sequence[pa.RecordBatch]) -> Frame:
        """The rows of these batches, sorted by shard."""
        # One batch, but for strings of more than 2 GiB together.
        whole = pa.Table.from_batches(batches).combine_chunks().to_batches()
        rows = self._chosen(concat_rows([self._ingest_batch(batch) for batch in whole], self._layout))
        self.counts.partials += len(rows)
        return by_shard(rows, self._sent.shards, keep_arrivals=self.keep_arrivals)

    def _ingest_batch(self, batch: pa.RecordBatch) -> Rows:
        self.counts.rows += len(batch)
        batch, panes = self._in_time(batch)
        return self._built(Placed(batch, panes=panes))

    def _built(self, placed: Placed) -> Rows:
        layout = self._layout
        builder = RowsBuilder(len(placed.batch), layout)
        placed.put(builder, self._sent.keys, layout)
        for row, value in zip(self._sent.rows, layout.accumulators, strict=True):
            builder.put(placed.batch.column(row.name), row.type, value.word, value.bit)
        rows = builder.finish()
        put_hashes(rows, self._hash_program)
        return rows


class PassingIngest(RowIngestBase):
    """For operators that pass every row on, however late. Event times are only counted, for the watermark."""

    def __init__(self, spec: RowSpec) -> None:
        super().__init__(spec)
        self._time = spec.time_column

    def _in_time(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, np.ndarray | None]:
        if self._time is not None:
            times_of(batch, self._time.name, self.counts)
        return batch, None
