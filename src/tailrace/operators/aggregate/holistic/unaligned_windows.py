"""Functions of whole groups over a user's own windows, over tumbling ones and over all time, on the append store for
unaligned windows (AUR).

Invariants
- A row is appended once, to the list of its key and window. Which lists there are, and how long, ``row_index`` knows.
  Without windows every key has one list, in pane 0, which never ends.
- A list is expected to be read at its window's end, or when the user's estimate says: that is what the store reads
  ahead by.
- Append: windows with an end in (late_before, watermark] are emitted, and go. Update: lists that the epoch appended to
  are read whole, and results of those keys emitted; a user's function gets whole windows, every key of them. Complete:
  all lists are read in every epoch, and none goes.
- Lists are read back some at a time: what is read together has a bound that only a single list can pass.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from tailrace.ids import MIN_MICROS
from tailrace.operators.aggregate.finish import window_column
from tailrace.operators.aggregate.holistic.list_operator import INDEX_SHARE, ListOperator
from tailrace.operators.aggregate.holistic.results import Results
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.aggregate.window_aggregate import closed_records
from tailrace.operators.ingest.frame import Frame
from tailrace.operators.resources import Resources
from tailrace.operators.rows.row_index import RowCounts, pieces
from tailrace.operators.user_code.windows import KnownWindows, Trigger
from tailrace.state.append import list_sections
from tailrace.state.layout import HASH, PANE
from tailrace.state.read_modify_write.scan import every_pane, scan_keys, scan_panes
from tailrace.state.rows.rows import Rows, concat_rows


class WindowLists(ListOperator):
    on_close: Callable[[np.ndarray, np.ndarray], None] | None = None
    """Called in append mode, where accesses are recorded: the hashes of keys whose windows close, and their starts."""

    def __init__(
        self, spec: AggregateSpec, shards: Iterable[int], resources: Resources, results: Results | None = None
    ) -> None:
        self._window = spec.pane_windows
        index, lists = resources.share(INDEX_SHARE)
        shards = tuple(shards)
        self._index = RowCounts(spec.kept_keys, spec.layout(), shards, index)
        super().__init__(spec, shards, lists, self._index.store, results=results)
        self._known = None if spec.custom_window is None else KnownWindows(spec.name, self._layout)
        self._trigger = Trigger(spec)

    # One epoch -------------------------------------------------------------------------------------------------------

    def apply(self, epoch: int, frames: Sequence[Frame]) -> None:
        """Keep the rows of the committed attempts."""
        if self._known is not None:
            self._known.see(epoch, [frame.rows for frame in frames], self.horizon)
        triggers = [self._triggers(frame, epoch) for frame in frames] if self._window is not None else None
        parts = [frame.parts() for frame in frames]
        self._store.append(epoch, parts, triggers)
        self._index.merge(epoch, parts)
        self._appended = sum(frame.n for frame in frames)

    def _triggers(self, frame: Frame, epoch: int) -> np.ndarray:
        """When the lists of these rows are expected to be read."""
        assert self._window is not None and self.spec.time_column is not None
        ends = frame.rows[:, PANE] + self._window.length
        if self._known is None:
            return ends
        starts = frame.rows[:, self._layout.keys[-1].word]
        times = [row.name for row in self.spec.rows].index(self.spec.time_column.name)
        return self._trigger.times(starts, ends, frame.rows[:, self._layout.accumulators[times].word], epoch)

    def _output(self, epoch: int, late_before: int, watermark: int) -> Iterator[pa.RecordBatch]:
        closing = self.spec.closes and watermark > MIN_MICROS
        yield from self._emitted(epoch, late_before, watermark, closing)
        if closing and self._window is not None:
            horizon = self._window.first_open_pane(watermark)
            self._store.expire(horizon)
            self._index.store.expire(horizon)

    # Shards ----------------------------------------------------------------------------------------------------------

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        batches = list(batches)
        left = list_sections.applied(self._layout, batches, horizon, keep_tombstones=False)
        if self._known is not None:
            self._known.restore(batches)
        self._index.restore(shard, left.rows, horizon)
        super().restore(shard, batches, horizon)

    # Output ----------------------------------------------------------------------------------------------------------

    def _emitted(self, epoch: int, late_before: int, watermark: int, closing: bool) -> Iterator[pa.RecordBatch]:
        if self.spec.emit_changed:
            yield from self._read_all(epoch, self._changed(), remove=False)
        elif self.spec.complete:
            yield from self._read_all(epoch, scan_keys(self._index.store, every_pane), remove=False)
        else:
            assert self._window is not None
            closed = closed_records(self._index.store, self._window, late_before, watermark) if closing else ()
            yield from self._read_all(epoch, self._reported(closed), remove=True)

    def _changed(self) -> Iterator[Rows]:
        """Records of lists to read in update mode."""
        if self._function is None:
            yield from self._index.changed()
            return
        changed = [self._windows_of(records) for records in self._index.changed()]
        if not changed:
            return
        wanted = np.unique(np.concatenate(changed), axis=0)
        for records in scan_panes(self._index.store, lambda panes: np.flatnonzero(np.isin(panes, wanted[:, 0]))):
            _, numbers = np.unique(np.concatenate([wanted, self._windows_of(records)]), axis=0, return_inverse=True)
            numbers = numbers.reshape(-1)
            chosen = np.isin(numbers[len(wanted) :], numbers[: len(wanted)])
            yield Rows(records.words[chosen], records.heap)

    def _reported(self, found: Iterable[Rows]) -> Iterator[Rows]:
        """Records of windows that close."""
        for records in found:
            if self.on_close is not None:
                self.on_close(records.words[:, HASH], records.words[:, PANE])
            yield records

    def _windows_of(self, records: Rows) -> np.ndarray:
        """Pane and start of records, which name their windows."""
        starts = self._index.layout.keys[-1].word if self._known is not None else PANE
        return np.ascontiguousarray(records.words[:, (PANE, starts)])

    def _read_all(self, epoch: int, found: Iterable[Rows], *, remove: bool) -> Iterator[pa.RecordBatch]:
        if self._function is None:
            for records in found:
                yield from self._read(epoch, records, None, remove=remove)
            return
        # A function gets a window's keys together: window by window, and in an order that depends on keys alone.
        every = concat_rows([Rows(part.words.copy(), part.heap) for part in found if len(part)], self._index.layout)
        hashes, windows = every.words[:, HASH], self._windows_of(every)
        order = np.lexsort((hashes, hashes % self.spec.shards, windows[:, 1], windows[:, 0]))
        windows = windows[order]
        edges = np.flatnonzero((windows[1:] != windows[:-1]).any(axis=1)) + 1
        yield from self._read(epoch, Rows(every.words[order], every.heap), edges, remove=remove)

    def _read(self, epoch: int, records: Rows, edges: np.ndarray | None, *, remove: bool) -> Iterator[pa.RecordBatch]:
        for part in pieces(self._index.counts(records), edges):
            some = Rows(records.words[part], records.heap)
            groups = self._groups(*self._store.read(self._index.targets(some), remove=remove))
            windows = window_column(some, self.spec, self._layout) if self.spec.windowed else None
            if self._function is None:
                yield self._results.batch(groups, windows)
            else:
                assert windows is not None
                starts, ends = (np.asarray(edge.cast(pa.int64())) for edge in windows.flatten())
                yield from self._function.by_window(groups, starts, ends, epoch)
