"""Functions of whole groups over windows by count, on the append store for unaligned windows (AUR).

Invariants
- A row is appended once, to the list of its key and pane, however many windows overlap; without overlap a pane is a
  window, and has its number. How many rows of a key came so far is a record of its own, for ever: windows and panes are
  numbered by it. Both are checkpointed, in one section.
- A window is read in the epoch that fills it, and lists go with the last window that has them. Update: also windows
  that are not full are read, in every epoch that adds a row to them.
- With a time-to-live that record also has when the key was last updated, and ``expiry`` says which are forgotten: with
  them go the lists of their open windows, unfinished. The next row of such a key begins window 0.
- Nobody knows when a window will be full, so no list is read ahead.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from tailrace.operators.aggregate.holistic.list_operator import INDEX_SHARE, ListOperator
from tailrace.operators.aggregate.holistic.results import Results
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.count_window import sections as count_sections
from tailrace.operators.count_window.windows import (
    NO_WINDOWS,
    Arrivals,
    Shape,
    Windows,
    in_sequence,
    named,
    ranges,
    windows_of,
)
from tailrace.operators.ingest.frame import Frame
from tailrace.operators.resources import Resources
from tailrace.operators.rows.places import time_word
from tailrace.operators.rows.row_index import RowCounts, pieces
from tailrace.operators.timers.expiry import DEADLINES_SHARE, Expiry
from tailrace.state.layout import PANE
from tailrace.state.read_modify_write import probes
from tailrace.state.rows.rows import Rows, concat_rows, no_rows


class CountRows(ListOperator):
    def __init__(
        self, spec: AggregateSpec, shards: Iterable[int], resources: Resources, results: Results | None = None
    ) -> None:
        window = spec.count_window
        assert window is not None
        self._shape = Shape(window.size, window.slide or window.size)
        counts, lists = resources.share(INDEX_SHARE)
        deadlines, counts = (None, counts) if spec.ttl is None else counts.share(DEADLINES_SHARE)
        shards = tuple(shards)
        self._totals = RowCounts(spec.keys, spec.layout(), shards, counts, expire=spec.ttl is not None)
        super().__init__(spec, shards, lists, self._totals.store, results=results)
        self._expiry: Expiry | None = None
        if spec.ttl is not None and self._totals.updated is not None and deadlines is not None:
            kept, updated = self._totals.store, self._totals.updated
            self._expiry = Expiry(kept, updated, spec.ttl.clock, spec.shards, deadlines)
            self._companions.append(self._expiry)
        self._keys, self._touched = no_rows(self._layout), NO_WINDOWS  # of the newest epoch
        self._passed = no_rows(self._layout)  # lists of overlapping windows that the newest epoch leaves behind

    # One epoch -------------------------------------------------------------------------------------------------------

    def set_times(self, now: int, forget_before: int) -> None:
        if self._expiry is not None:
            self._expiry.set_times(now, forget_before)

    def apply(self, epoch: int, frames: Sequence[Frame]) -> None:
        """Keep the rows of the committed attempts, each in its window."""
        totals = self._totals.store
        totals.open(epoch)
        gone = self._forgotten(epoch) if self._expiry is not None and self._expiry.processing else None
        came = in_sequence(frames, self.spec, self._layout)
        firsts, bounds = came.firsts
        totals.load([(firsts, bounds)])
        records, keys = probes.in_memory(totals, firsts, bounds)
        before = np.zeros(len(firsts), np.int64)
        before[keys] = self._totals.counts(records)
        self._keys, self._touched = firsts, windows_of(before, came.sizes, self._shape)
        if not self._shape.tumbling:
            last = self._shape.panes_from(before + came.sizes)
            self._passed = named(firsts, *ranges(self._shape.panes_from(before), last))
        came.frame.rows[:, PANE] = came.numbers(before, self._shape.pane)
        self._store.append(epoch, [came.frame.parts()], gone=gone)
        totals.merge_more([(self._totals.records(firsts, came.sizes, self._updates(came)), bounds)])
        if self._expiry is not None:
            self._expiry.note_made()
        self._appended = came.frame.n

    def _updates(self, came: Arrivals) -> np.ndarray | None:
        """When each key is updated by these rows."""
        if self._expiry is None:
            return None
        if self._expiry.processing:
            return np.full(len(came.sizes), self._expiry.now)
        return came.latest(time_word(self.spec, self._layout))

    def _forgotten(self, epoch: int) -> Rows:
        """Forget keys that were not updated for long; the lists of their open windows, which are still there."""
        assert self._expiry is not None
        store, shape, parts = self._totals.store, self._shape, []
        tables = dict(store.tables())
        for shard, rows in self._expiry.expired(epoch):
            records = tables[shard].copy(rows)
            store.remove(shard, rows)
            counts = self._totals.counts(records)
            panes = ranges(shape.panes_from(counts), shape.panes_to(counts))
            parts.append(named(self._totals.targets(records), *panes))
        return concat_rows(parts, self._layout)

    def _output(self, epoch: int, late_before: int, watermark: int) -> Iterator[pa.RecordBatch]:
        """What the epoch filled, or changed; what is full is dropped."""
        full = self._touched.filled == self._shape.size
        yield from self._emitted(epoch, full, remove=self._shape.tumbling)
        if self.spec.emit_changed:
            yield from self._emitted(epoch, ~full, remove=False)
        if len(self._passed):
            self._store.remove(self._passed)
        if self._expiry is not None and not self._expiry.processing:
            self._store.remove(self._forgotten(epoch))

    def _emitted(self, epoch: int, chosen: np.ndarray, *, remove: bool) -> Iterator[pa.RecordBatch]:
        touched = self._touched.where(chosen)
        for part in pieces(touched.filled):
            some = touched.where(part)
            if self._shape.tumbling:
                rows, offsets = self._store.read(named(self._keys, some.keys, some.numbers), remove=remove)
            else:
                rows, offsets = self._overlapping(some)
            groups = self._groups(rows, offsets)
            windows = pa.array(some.numbers)
            if self._function is not None:
                yield from self._function.of_own_windows(groups, windows, epoch)
            else:
                yield self._results.batch(groups, windows)

    def _overlapping(self, windows: Windows) -> tuple[Rows, np.ndarray]:
        """The rows of windows, window after window, and where each begins: a list is read once for all that have it."""
        pane, step = self._shape.pane, self._shape.slide // self._shape.pane
        first, end = windows.numbers * step, windows.numbers * step - (-windows.filled // pane)
        # Windows of a key follow each other, so that together they have a range of panes without gaps.
        starts = np.flatnonzero(np.diff(windows.keys, prepend=-1))
        sizes = np.diff(starts, append=len(windows))
        which, panes = ranges(first[starts], np.maximum.reduceat(end, starts))
        rows, edges = self._store.read(named(self._keys, windows.keys[starts][which], panes), remove=False)
        before = np.searchsorted(which, np.arange(len(starts)))  # of a key's panes all that were read before
        shift = np.repeat(before - first[starts], sizes)
        _, numbers = ranges(edges[first + shift], edges[end + shift])
        offsets = np.concatenate([[0], np.cumsum(edges[end + shift] - edges[first + shift])])
        return Rows(rows.words[numbers], rows.heap), offsets

    def delta(self, epoch: int) -> dict[int, pa.RecordBatch]:
        self._check_newest(epoch)
        return count_sections.united(self.spec, self._store.delta(), self._totals.store.delta())

    def undo(self, epoch: int) -> None:
        self._keys, self._touched, self._passed = no_rows(self._layout), NO_WINDOWS, no_rows(self._layout)
        super().undo(epoch)

    # Shards ----------------------------------------------------------------------------------------------------------

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        if shard in self.shards:
            self.drop_shard(shard)
        parts = [count_sections.divided(batch, self.spec) for batch in batches]
        self._store.restore(shard, [lists for lists, _ in parts], horizon)
        look = None if self._expiry is None else partial(self._expiry.restore, shard)
        self._totals.store.restore(shard, [totals for _, totals in parts], horizon, look)
