"""Keyed aggregation over windows (tumbling, sliding, a user's own) or over all time, on the read-modify-write store.

Invariants
- One record per (key, pane); a pane is the widest span that no window edge cuts, so a row is written once however many
  windows overlap. Without windows every key lives in pane 0 and never closes.
- A window closes at the first epoch whose watermark reaches its end. A pane goes when the last window that holds it has
  closed; ``horizon`` is the start of the first pane that stays.
- What is emitted depends only on state and watermarks, never on timing, nor on which records are in memory and which
  on disk: the panes of a window are merged in their order. A replayed epoch emits the same rows.
- Windows of a user's own lie in panes that are their ends, and their starts are part of the key: so they close and go
  as tumbling ones do, in the order of their panes, whatever their starts.
- Records on disk are read in pieces (see ``closing``), and stay there.
- In output mode complete every group is read and emitted in every epoch, shard by shard, and no pane ever goes.

Threads: one call at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from tailrace.ids import MIN_MICROS
from tailrace.operators.aggregate.finish import finish
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.ingest.frame import Frame
from tailrace.operators.output import OUTPUT_ROWS_MAX, EpochOutput, output_pieces
from tailrace.operators.resources import Resources
from tailrace.operators.store_operator import HintedRecords, OverStore, RecordSnapshots, record_store
from tailrace.operators.user_code.windows import KnownWindows
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.state.hash_table.table import Table
from tailrace.state.layout import HASH, PANE, VALID
from tailrace.state.read_modify_write.scan import every_pane, scan_keys, scan_panes, scan_panes_from, scan_windows
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.state.sections.compaction import compact_records

_FOREVER = 2**63 - 1
_LOOKUPS_MAX = 1 << 20
"""Panes looked up at once when changed windows are put together: bounds the memory for it."""


class WindowAggregate(HintedRecords, RecordSnapshots, OverStore[ReadModifyWriteStore]):
    on_close: Callable[[np.ndarray, np.ndarray], None] | None = None
    """Called where accesses are recorded, with the hashes of keys whose windows close, and where these start."""

    def __init__(
        self, spec: AggregateSpec, shards: Iterable[int], resources: Resources, noted_word: int | None = None
    ) -> None:
        """``noted_word``: for operators that remove single records, see the store."""
        self.spec = spec
        self._layout = spec.layout()
        self._known = None if spec.custom_window is None else KnownWindows(spec.name, self._layout)
        self._resources = resources
        # Where sliding windows change, the panes of their other changes are looked for in the tables.
        in_pieces = type(self) is WindowAggregate and not (spec.emit_changed and _slides(spec))
        store = record_store(self._layout, shards, resources, noted_word=noted_word, spill_changes=in_pieces)
        super().__init__(store)

    def updated(self, epoch: int) -> int:
        self._check_newest(epoch)
        return self._store.changes.count()

    # One epoch -------------------------------------------------------------------------------------------------------

    def apply(self, epoch: int, frames: Sequence[Frame]) -> None:
        """Merge the frames of the committed attempts, in the order in which the driver has named these."""
        if self._known is not None:
            self._known.see(epoch, [frame.rows for frame in frames], self.horizon)
        self._store.open(epoch)
        self._merge(epoch, frames)

    def _merge(self, epoch: int, frames: Sequence[Frame]) -> None:
        with self.spec.naming_overflow(epoch):
            self._store.merge_more([frame.parts() for frame in frames])

    def advance(self, epoch: int, late_before: int, watermark: int) -> Sequence[pa.RecordBatch]:
        """Emit what changed, or what closes by ``watermark``; then drop what no later row can reach.

        ``late_before`` is the watermark that rows of this epoch were judged by.
        """
        self._check_newest(epoch)
        window = self.spec.pane_windows
        with self.spec.naming_overflow(epoch):
            emitted = EpochOutput(self._output(window, late_before, watermark), self._resources)
        if window is not None and self.spec.closes and watermark > MIN_MICROS:
            self._store.expire(window.first_open_pane(watermark))
        return emitted

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        batches = list(batches)
        if self._known is not None:
            self._known.restore(batches)
        super().restore(shard, batches, horizon)

    @property
    def restored_in_pieces(self) -> bool:
        """Not where an operator made of this one looks at a shard's records, or at its sections, by itself."""
        return type(self).restore is WindowAggregate.restore

    def restore_more(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        batches = list(batches)
        if self._known is not None:
            self._known.restore(batches)
        self._store.restore_more(shard, batches, horizon)

    # Output ----------------------------------------------------------------------------------------------------------

    def _output(self, window: TimeWindowSpec | None, late_before: int, watermark: int) -> Iterator[pa.RecordBatch]:
        if self.spec.complete:
            yield from self._every(window)
            return
        if self.spec.emit_changed:
            yield from self._changed(window, late_before)
            if self.on_close is not None and window is not None and self.spec.watermarked:
                deque(self._closed(window, late_before, watermark), maxlen=0)  # only to report them
            return
        assert window is not None
        yield from self._closed(window, late_before, watermark)

    def _every(self, window: TimeWindowSpec | None) -> Iterable[pa.RecordBatch]:
        if window is None or window.tumbling:
            return self._finished(scan_keys(self._store, every_pane))
        return self._merged(self._partials_of(window, MIN_MICROS, _FOREVER, in_pieces=True))

    def _changed(self, window: TimeWindowSpec | None, late_before: int) -> Iterable[pa.RecordBatch]:
        if window is None or window.tumbling:
            return (batch for rows in self._store.changes.pieces() for batch in self._finish(rows))
        return self._merged(self._changed_partials(window, late_before))

    def _changed_partials(self, window: TimeWindowSpec, late_before: int) -> Iterator[Rows]:
        panes = window.pane_offsets
        step = max(1, _LOOKUPS_MAX // len(panes))
        for shard, table, rows in self._store.changes.in_tables():
            at, windows = window.holding(table.pane_starts(rows), late_before)
            targets = self._distinct_keys(table, rows[at], windows)
            for low in range(0, len(targets), step):
                some = Rows(targets.words[low : low + step], targets.heap)
                yield scan_panes_from(self._store, shard, some, panes)

    def _distinct_keys(self, table: Table, rows: np.ndarray, windows: np.ndarray) -> Rows:
        """The distinct (key, window) pairs, without accumulators."""
        keys = table.copy(rows, windows)
        keys.words[:, VALID] &= self._layout.key_mask
        distinct = Table(self._layout, rows_expected=len(keys))
        distinct.begin(len(keys))
        distinct.merge(keys.words, keys.heap, 0, len(keys), replace=True)
        return distinct.copy(distinct.changed_rows())

    def _closed(self, window: TimeWindowSpec, late_before: int, watermark: int) -> Iterable[pa.RecordBatch]:
        """Windows with an end in (late_before, watermark]."""
        if watermark <= late_before:
            return ()
        if window.tumbling:
            closed = self._reported(closed_records(self._store, window, late_before, watermark))
            return (batch for rows in closed for batch in self._finish(rows))
        return self._merged(self._reported(self._partials_of(window, late_before, watermark)))

    def _reported(self, pieces: Iterator[Rows]) -> Iterator[Rows]:
        """Records whose pane is the start of a window that closes. A piece holds all of its keys and windows."""
        for rows in pieces:
            if self.on_close is not None and len(rows):
                pairs = np.unique(rows.words[:, (HASH, PANE)], axis=0)
                self.on_close(pairs[:, 0], pairs[:, 1])
            yield rows

    def _partials_of(
        self, window: TimeWindowSpec, ends_after: int, ends_by: int, *, in_pieces: bool = False
    ) -> Iterator[Rows]:
        """Records once for each window with an end in (ends_after, ends_by] that holds their pane, with its start."""
        holding = partial(window.holding, ends_after=ends_after, ends_by=ends_by)
        copies = -(-window.size // window.slide)
        return scan_windows(self._store, holding, ends_by, copies=copies, in_pieces=in_pieces)

    def _merged(self, pieces: Iterable[Rows]) -> Iterable[pa.RecordBatch]:
        """Panes put together to windows: partials whose pane is now their window's start, merged once more.

        A piece holds all partials of its keys and windows.
        """
        return self._finished(self._as_one(partials) for partials in pieces if len(partials))

    def _as_one(self, partials: Rows) -> Rows:
        merged = Table(self._layout, rows_expected=len(partials))
        merged.begin(len(partials))
        merged.merge(partials.words, partials.heap, 0, len(partials))
        return merged.copy(merged.changed_rows())

    def _finished(self, pieces: Iterable[Rows]) -> Iterator[pa.RecordBatch]:
        """Small pieces are put out together."""
        waiting: list[Rows] = []
        for rows in pieces:
            waiting.append(rows)
            if sum(map(len, waiting)) >= OUTPUT_ROWS_MAX:
                yield from self._finish(concat_rows(waiting, self._layout))
                waiting = []
        yield from self._finish(concat_rows(waiting, self._layout))

    def _finish(self, rows: Rows) -> Iterable[pa.RecordBatch]:
        return (finish(piece, self.spec, self._layout) for piece in output_pieces(rows))


def closed_records(
    store: ReadModifyWriteStore, window: TimeWindowSpec, late_before: int, watermark: int
) -> Iterator[Rows]:
    """The records of tumbling windows with an end in (late_before, watermark]: those in memory, then those on disk."""
    if watermark <= late_before:
        return iter(())
    return scan_panes(store, lambda panes: window.holding(panes, late_before, watermark)[0], watermark + 1)


def _slides(spec: AggregateSpec) -> bool:
    return spec.pane_windows is not None and not spec.pane_windows.tumbling


def compact_sections(spec: AggregateSpec, batches: Sequence[pa.RecordBatch], horizon: int) -> pa.RecordBatch:
    """One section that stands for several, oldest first."""
    return compact_records(spec.layout(), batches, horizon)
