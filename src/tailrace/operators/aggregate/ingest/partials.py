"""Rows to partials, in the task: event-time panes, lateness, partial aggregates, combining.

A row becomes a partial (see ``state.layout``) as early as possible; from there on merging is the only operation, in
the task, in the server and when panes are put together to windows. Whole Arrow batches at a time.

Threads: a ``PartialIngest`` belongs to one task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext

import numpy as np
import pyarrow as pa

from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput
from tailrace.operators.aggregate.functions.states import state_of
from tailrace.operators.aggregate.ingest.rows import Placer
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.ingest.event_time import IngestCounts
from tailrace.operators.ingest.frame import Frame, by_shard
from tailrace.operators.ingest.key_hash import hash_program, put_hashes
from tailrace.operators.rows.intervals import numbers_of_keys, sessions_of
from tailrace.operators.rows.keyed import sample
from tailrace.state.hash_table.batch_merge import put_states
from tailrace.state.hash_table.table import Table, key_numbers
from tailrace.state.layout import PANE, AccumulatorWords, Merge
from tailrace.state.rows import columns
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.types import DataType

_ONE_DOUBLE = np.float64(1.0).view(np.int64)


class PartialIngest:
    """Turns the batches of one task into frames.

    ``late_before``: a row whose last window ended at or before it is late. Input batches hold the operator's
    columns by name.
    """

    def __init__(
        self,
        spec: AggregateSpec,
        late_before: int,
        combine: bool,
        input_types: Mapping[str, DataType],
        epoch: int | None = None,
    ) -> None:
        self._spec = spec
        self._layout = spec.layout()
        self._hash_program = hash_program(self._layout, len(spec.keys))
        self._states = spec.states
        self._combine = combine
        self._types = input_types
        self._epoch = epoch
        self.counts = IngestCounts()
        self.keep_arrivals = False
        self._placer = Placer(spec, late_before, epoch, self.counts)

    def frame(self, batches: Sequence[pa.RecordBatch]) -> Frame:
        """The partials of these batches, combined per key where asked, sorted by shard."""
        # One batch, but for strings of more than 2 GiB together.
        whole = pa.Table.from_batches(batches).combine_chunks().to_batches()
        rows = concat_rows([self._ingest_batch(batch) for batch in whole], self._layout)
        sample(rows, self._layout, self.counts)
        if self._combine and len(rows):
            # Without an epoch it is a server that asks, and names the overflow itself.
            with nullcontext() if self._epoch is None else self._spec.naming_overflow(self._epoch):
                rows = self._combined(rows)
        self.counts.partials += len(rows)
        return by_shard(rows, self._spec.shards, keep_arrivals=self.keep_arrivals)

    def _ingest_batch(self, batch: pa.RecordBatch) -> Rows:
        spec, layout, counts = self._spec, self._layout, self.counts
        counts.rows += len(batch)
        placed = self._placer.placed(batch)
        batch = placed.batch
        builder = RowsBuilder(len(batch), layout)
        placed.put(builder, spec.keys, layout)
        for accumulator, where in zip(spec.accumulators, layout.accumulators, strict=True):
            array = None if accumulator.column is None else batch.column(accumulator.column)
            self._put(builder, accumulator, where, array, placed.times)
        rows = builder.finish()
        put_hashes(rows, self._hash_program)
        if spec.dynamic_session is not None and (self._combine or not counts.sampled_rows):
            self._put_in_sessions(rows)
        return self._with_states(rows, batch) if self._states and len(rows) else rows

    def _put_in_sessions(self, rows: Rows) -> None:
        """Rows of one session get one pane, that of the first of them: such rows may be combined."""
        low, high = (place.word for place in self._layout.accumulators[:2])
        keys, _ = numbers_of_keys(rows, self._layout)
        words = rows.words
        starts, ends = np.ascontiguousarray(words[:, low]), np.ascontiguousarray(words[:, high])
        sessions = sessions_of(keys, starts, ends)
        words[:, PANE] = sessions.starts[sessions.numbers]

    def _with_states(self, rows: Rows, batch: pa.RecordBatch) -> Rows:
        """The state of all rows of a key and pane goes into the first of them; not combined, each row has its own."""
        offsets = firsts = np.arange(len(rows) + 1)
        if self._combine:
            numbers, firsts = key_numbers(rows, self._layout)
            batch = batch.take(pa.array(np.argsort(numbers, kind="stable")))
            offsets = np.concatenate([[0], np.cumsum(np.bincount(numbers))])
        for state in self._states:
            made = state_of(state.spec).update([batch.column(name) for name in state.spec.columns], offsets)
            places = self._layout.accumulators[state.first : state.end]
            rows = put_states(rows, firsts[: len(offsets) - 1], places, made)
        return rows

    def _put(
        self,
        builder: RowsBuilder,
        accumulator: Accumulator,
        where: AccumulatorWords,
        array: pa.Array | None,
        times: np.ndarray | None,
    ) -> None:
        words = builder.words
        if accumulator.input in (AccumulatorInput.STAMP, AccumulatorInput.STATE):
            return
        if array is None:
            words[:, where.word] = 1
            builder.set_bit(where.bit, None)
            return
        assert accumulator.column is not None
        valid = columns.valid_mask(array)
        input = accumulator.input
        if input is AccumulatorInput.PRESENT:
            words[:, where.word] = 1 if valid is None else valid
            builder.set_bit(where.bit, None)
        elif input is AccumulatorInput.VALUE:
            self._put_value(builder, array, accumulator.column, where, valid)
        elif input is AccumulatorInput.DOUBLE:
            builder.set_bit(where.bit, valid)
            doubles = columns.double_words(array, self._types[accumulator.column], valid)
            if accumulator.merge is Merge.MOMENTS:
                words[:, where.word] = _ONE_DOUBLE if valid is None else np.where(valid, _ONE_DOUBLE, 0)
                words[:, where.word + 1] = doubles
                values = doubles.view(np.float64)
                with np.errstate(invalid="ignore"):
                    # 0, but for what is not finite: there it is NaN, and so is the deviation, as in Spark.
                    words[:, where.word + 2] = (values - values).view(np.int64)
            else:
                words[:, where.word] = doubles
        else:
            assert times is not None
            builder.put(array, accumulator.type, where.value_word, where.bit2)
            if input is AccumulatorInput.TIMED or valid is None:
                builder.set_bit(where.bit, None)
                words[:, where.word] = times
            else:
                builder.set_bit(where.bit, valid)
                words[:, where.word] = np.where(valid, times, 0)

    def _put_value(
        self, builder: RowsBuilder, array: pa.Array, column: str, where: AccumulatorWords, valid: np.ndarray | None
    ) -> None:
        given = self._types[column]
        if given.kind == where.kind:
            builder.put(array, given, where.word, where.bit)
            return
        # A narrow decimal that is summed in a wide one: same digits, sign extended.
        builder.set_bit(where.bit, valid)
        low = columns.fixed_words(array, given, valid)
        builder.words[:, where.word] = low
        builder.words[:, where.word + 1] = low >> 63

    def _combined(self, rows: Rows) -> Rows:
        table = Table(self._layout, rows_expected=len(rows))
        table.begin(len(rows))
        table.merge(rows.words, rows.heap, 0, len(rows))
        return table.copy(table.changed_rows())
