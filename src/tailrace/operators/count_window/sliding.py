"""Incremental aggregates over overlapping windows by count, on the read-modify-write store.

Invariants
- A row is merged into at most three records and a window is made of at most two, however many windows overlap. Nothing
  is ever taken off a value again, so that every aggregate that merges will do.
- Let a pane be ``slide`` rows and a block as many whole panes as fit into a window, both counted from a key's first
  row. A window that begins in the middle of a block has the rest of that block, and rows of the next one from its
  beginning on; one that begins with a block has rows of it from there on.
- So a key has, each in a place of its own (``PANE`` of its record):
  the *head*, for ever or for its time-to-live: all rows so far of the block that is being filled, but as the first
  accumulator how many rows of the key came at all, which is all of it where the block has no row yet;
  the *former* head, where panes do not fill a window: it goes on for the rows that its window still lacks;
  a record a *pane*, but for a block's first. When the block is full, each is made to hold all rows from its pane to the
  block's end, newest pane first; from then on it waits for its window to be full.
- There are no more places for panes than a block has: one takes the place of the pane whose window is over (``slot``).
  What is left in a place that is not needed is never read.
- Values are merged older before newer, so that a tie goes to the row that counts first. Which rows are merged together
  depends on their numbers alone, but sums of doubles round as panes do, not as one window after the other would.
- Keys are done some at a time, so that a block that gets full for many at once needs no more memory than it must.
- Keys, their order and what is emitted: as in ``tumbling``.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from tailrace.errors import SumOverflowError
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.count_window.steps import FORMER_PANE, Blocks, Steps
from tailrace.operators.count_window.tumbling import CountAggregate
from tailrace.operators.count_window.windows import Arrivals, in_sequence, named
from tailrace.operators.ingest.frame import Frame, by_shard
from tailrace.operators.resources import Resources
from tailrace.operators.rows.row_index import pieces
from tailrace.state.hash_table.table import Table
from tailrace.state.layout import HASH
from tailrace.state.read_modify_write import probes
from tailrace.state.rows.arrange import take
from tailrace.state.rows.rows import Rows, concat_rows

WORK_ROWS_MAX = 1 << 20
"""Rows, records and windows that are merged together, but for those of a single key: bounds the memory for it."""


class CountPanes(CountAggregate):
    def __init__(self, spec: AggregateSpec, shards: Iterable[int], resources: Resources) -> None:
        super().__init__(spec, shards, resources)
        window = spec.count_window
        assert window is not None and window.slide is not None
        self._shape = Blocks(window.size, window.slide)

    # One epoch -------------------------------------------------------------------------------------------------------

    def apply(self, epoch: int, frames: Sequence[Frame]) -> None:
        """Put the rows of the committed attempts into windows; those that are full, or changed, wait to be emitted."""
        store = self._store
        store.open(epoch)
        self._forget_first(epoch)
        came = in_sequence(frames, self.spec, self._sent)
        firsts, bounds = came.firsts
        store.load([(firsts, bounds)])
        heads, keys = probes.in_memory(store, firsts, bounds)
        before = np.zeros(len(firsts), np.int64)
        before[keys] = heads.words[:, self._rows_word]
        needed = self._shape.needed(before, before + came.sizes, self.spec.emit_changed) + came.sizes
        windows = []
        for part in pieces(needed, at_most=WORK_ROWS_MAX):
            low, high = np.searchsorted(keys, [part.start, part.stop])
            own = take(heads, np.arange(low, high), self._layout)
            windows.append(self._merge(epoch, came.part(part), before[part], own, keys[low:high] - part.start))
        self._output = concat_rows(windows, self._layout)

    def _merge(self, epoch: int, came: Arrivals, before: np.ndarray, heads: Rows, keys: np.ndarray) -> Rows:
        """Put rows of some keys into windows; give those that are full, or changed. ``heads``: what ``keys`` had."""
        store, layout = self._store, self._layout
        firsts, bounds = came.firsts
        place = None if self._expiry is None else self._expiry.updated
        times = None if place is None else self._updates(came, heads, keys)
        steps = Steps(self._shape, came, before, layout, self.spec.emit_changed)
        overflowed = steps.merge(self._partials(came), heads, keys, *self._read(firsts, bounds, *steps.needed()))
        with self.spec.naming_overflow(epoch):
            if overflowed >= 0:
                raise SumOverflowError(f"a sum left the range of {layout.accumulators[overflowed].type}")
        # Heads come last: a time-to-live is theirs alone, and the store reports which records the last merge has made.
        store.merge_more([by_shard(steps.panes(), self.spec.shards).parts()], replace=True, hold=False)
        store.merge_more([(steps.heads(place, times), bounds)], replace=True)
        if self._expiry is not None:
            self._expiry.note_made()
        return steps.windows()

    def _read(self, firsts: Rows, bounds: np.ndarray, which: np.ndarray, panes: np.ndarray) -> tuple[Rows, np.ndarray]:
        """Copies of the records of keys ``which`` (ascending) that lie in these panes, and the number of each."""
        wanted, edges = named(firsts, which, panes), np.searchsorted(which, bounds)
        self._store.load([(wanted, edges)])
        return probes.in_memory(self._store, wanted, edges)

    # Forgetting ------------------------------------------------------------------------------------------------------

    def _forget_first(self, epoch: int) -> None:
        if self._expiry is not None and self._expiry.processing:
            self._forget_keys(epoch)

    def _forget_last(self, epoch: int) -> None:
        if self._expiry is not None and not self._expiry.processing:
            self._forget_keys(epoch)

    def _forget_keys(self, epoch: int) -> None:
        """Remove heads that were not updated for long, and with them all other records of their keys."""
        assert self._expiry is not None
        store = self._store
        tables = dict(store.tables())
        for shard, rows in self._expiry.expired(epoch):
            heads = tables[shard].copy(rows)
            store.remove(shard, rows)
            others = named(heads, *self._shape.places(heads.words[:, self._rows_word]))
            edges = np.zeros(self.spec.shards + 1, np.int64)
            edges[shard + 1 :] = len(others)
            store.load([(others, edges)])
            there = np.unique(tables[shard].locate(others))
            store.remove(shard, there[there >= 0])

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        if shard in self._store.shards:
            self.drop_shard(shard)
        self._store.restore(
            shard, batches, horizon, None if self._expiry is None else partial(self._await_heads, shard)
        )

    def _await_heads(self, shard: int, table: Table) -> None:
        """Of a shard that was loaded."""
        assert self._expiry is not None
        rows = table.rows_of(table.panes(FORMER_PANE))
        times = table.word(rows, self._expiry.updated.word)
        self._expiry.deadlines.restore(shard, times, table.word(rows, HASH))
