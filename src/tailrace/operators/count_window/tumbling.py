"""Incremental aggregates over windows by count that do not overlap, on the read-modify-write store.

Invariants
- One record a key, in pane 0, for ever or for its time-to-live: its first accumulator is how many rows of the key came
  so far, which makes the number of its open window and how full that is; the others are those of the open window, and
  hold nothing while it has no row.
- An epoch's rows are put in order (see ``windows.in_sequence``) and merged after the open window's record, window by
  window; full windows are put out, and the rest takes the record's place. So a record is replaced, never merged into.
- Append: windows that the epoch filled. Update: every window that it added a row to, full or not.
- With a time-to-live the second accumulator is when the key was last updated, whatever the window. ``expiry`` says
  which records are forgotten: their open windows go unfinished, and the next row of such a key begins window 0.
- What is emitted depends only on state and on the epoch's rows: a replayed epoch emits the same rows.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tailrace.ids import MIN_MICROS
from tailrace.operators.aggregate.finish import finish
from tailrace.operators.aggregate.ingest.partials import PartialIngest
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.count_window.windows import Arrivals, in_sequence, named_columns
from tailrace.operators.ingest.frame import Frame, by_shard
from tailrace.operators.output import output_pieces
from tailrace.operators.resources import Resources
from tailrace.operators.rows.places import time_word
from tailrace.operators.store_operator import HintedRecords, RecordSnapshots, record_store
from tailrace.operators.timers.expiry import DEADLINES_SHARE, Expiring, Expiry
from tailrace.state.hash_table.table import Table
from tailrace.state.layout import PANE, VALID
from tailrace.state.read_modify_write import probes
from tailrace.state.rows.rows import Rows, concat_rows, no_rows


class CountAggregate(HintedRecords, RecordSnapshots, Expiring):
    def __init__(self, spec: AggregateSpec, shards: Iterable[int], resources: Resources) -> None:
        assert spec.count_window is not None
        self.spec = spec
        self._size = spec.count_window.size
        self._sent = spec.layout()
        self._layout = spec.record_layout()
        self._rows_word = self._layout.accumulators[0].word
        # Rows become partial aggregates here: tasks must send the columns by which rows are put in order.
        self._ingested = replace(
            spec,
            rows=(),
            outputs=(),
            window=None,
            store=None,
            emit_changed=True,
            watermarked=False,
            ttl=None,
        )
        self._types = {field.name: field.type for field in (*spec.keys, *spec.rows)}
        updated = None if spec.ttl is None else self._layout.accumulators[1]
        deadlines, records = (None, resources) if updated is None else resources.share(DEADLINES_SHARE)
        noted_word = None if updated is None else updated.word
        super().__init__(record_store(self._layout, shards, records, noted_word=noted_word))
        if spec.ttl is not None and updated is not None and deadlines is not None:
            self._expire_by(Expiry(self._store, updated, spec.ttl.clock, spec.shards, deadlines))
        self._output = no_rows(self._layout)

    def updated(self, epoch: int) -> int:
        self._check_newest(epoch)
        return self._store.changes.count()

    # One epoch -------------------------------------------------------------------------------------------------------

    def apply(self, epoch: int, frames: Sequence[Frame]) -> None:
        """Put the rows of the committed attempts into windows; those that are full, or changed, wait to be emitted."""
        self._store.open(epoch)
        self._forget_first(epoch)
        came = in_sequence(frames, self.spec, self._sent)
        firsts, bounds = came.firsts
        self._store.load([(firsts, bounds)])
        records, keys = probes.in_memory(self._store, firsts, bounds)
        before = np.zeros(len(firsts), np.int64)
        before[keys] = records.words[:, self._rows_word]
        partials = self._partials(came)
        partials.words[:, PANE] = came.numbers(before, self._size)
        self._stamp(partials, came, records, keys)
        windows = self._merged(epoch, records, partials)
        full = windows.words[:, self._rows_word] == self._size
        self._output = windows if self.spec.emit_changed else Rows(windows.words[full], windows.heap)
        emptied = (before + came.sizes) % self._size == 0
        starts = Rows(partials.words[came.offsets[:-1][emptied]], partials.heap)
        kept = [
            self._open(Rows(windows.words[~full], windows.heap)),
            self._empty(starts, (before + came.sizes)[emptied]),
        ]
        self._store.merge_more([by_shard(concat_rows(kept, self._layout), self.spec.shards).parts()], replace=True)
        if self._expiry is not None:
            self._expiry.note_made()

    def _partials(self, came: Arrivals) -> Rows:
        """The rows as partials, in the same order."""
        columns = named_columns(Rows(came.frame.rows, came.frame.heap), self.spec, self._sent)
        batch = pa.RecordBatch.from_pydict(columns or {"__row": pa.nulls(came.frame.n)})
        # By shard already, so that it changes no place.
        ingested = PartialIngest(self._ingested, MIN_MICROS, False, self._types).frame([batch])
        return Rows(ingested.rows, ingested.heap)

    def _stamp(self, partials: Rows, came: Arrivals, records: Rows, keys: np.ndarray) -> None:
        """Into all partials of a key when it was last updated, these rows included: a window that goes on knows it."""
        if self._expiry is None:
            return
        place = self._expiry.updated
        partials.words[:, place.word] = np.repeat(self._updates(came, records, keys), came.sizes)
        partials.words[:, VALID] |= 1 << place.bit

    def _updates(self, came: Arrivals, records: Rows, keys: np.ndarray) -> np.ndarray:
        """When each key was last updated. ``records``: of the keys that were there, ``keys``."""
        assert self._expiry is not None
        if self._expiry.processing:
            return np.full(len(came.sizes), self._expiry.now)
        times = came.latest(time_word(self.spec, self._sent))
        times[keys] = np.maximum(times[keys], records.words[:, self._expiry.updated.word])
        return times

    def _merged(self, epoch: int, records: Rows, partials: Rows) -> Rows:
        """Windows with rows of this epoch: open ones as they were, then the rows in their order."""
        before = records.words[:, self._rows_word]
        words = records.words[before % self._size > 0]
        words[:, PANE] = words[:, self._rows_word] // self._size
        words[:, self._rows_word] %= self._size
        table = Table(self._layout, rows_expected=len(words) + len(partials))
        table.begin(len(words) + len(partials))
        with self.spec.naming_overflow(epoch):
            table.merge(words, records.heap, 0, len(words))
            table.merge(partials.words, partials.heap, 0, len(partials))
        return table.copy(table.changed_rows())

    def _open(self, windows: Rows) -> Rows:
        """Windows that are not full, as records of their keys."""
        words = windows.words.copy()
        words[:, self._rows_word] += words[:, PANE] * self._size
        words[:, PANE] = 0
        return Rows(words, windows.heap)

    def _empty(self, keys: Rows, rows: np.ndarray) -> Rows:
        """Records of keys whose next window has no row yet."""
        words = keys.words.copy()
        words[:, PANE] = 0
        words[:, VALID] &= self._layout.key_mask
        words[:, VALID] |= 1 << self._layout.accumulators[0].bit
        words[:, self._rows_word :] = 0
        words[:, self._rows_word] = rows
        if self._expiry is not None:
            place = self._expiry.updated
            words[:, place.word] = keys.words[:, place.word]
            words[:, VALID] |= 1 << place.bit
        return Rows(words, keys.heap)

    def advance(self, epoch: int, late_before: int, watermark: int) -> list[pa.RecordBatch]:
        """Emit what the epoch filled, or changed: windows by count do not wait for time."""
        self._check_newest(epoch)
        with self.spec.naming_overflow(epoch):
            emitted = [finish(piece, self.spec, self._layout) for piece in output_pieces(self._output)]
        self._forget_last(epoch)
        return emitted

    def undo(self, epoch: int) -> None:
        self._output = no_rows(self._layout)
        super().undo(epoch)
