"""Functions of whole groups over windows that end for all keys at once, on the append store for aligned windows (AAR).

Invariants
- Every row is kept once, in its pane, however many windows overlap; a window is read back when it closes (or, in update
  mode, when it changed), in bounded pieces that hold whole keys.
- Panes go as in ``window_aggregate``: with the last window that holds them, in output mode complete never. Those of a
  user's own windows are their ends, so that one pane may hold several windows, which differ in their starts.
- No function depends on the order in which rows came: a replayed epoch emits the same rows.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from tailrace.ids import MIN_MICROS
from tailrace.operators.aggregate.finish import window_bounds, window_struct
from tailrace.operators.aggregate.holistic.results import GroupResults
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.ingest.frame import Frame
from tailrace.operators.output import EpochOutput
from tailrace.operators.resources import Resources
from tailrace.operators.rows.groups import Groups
from tailrace.operators.rows.row_stores import pane_store
from tailrace.operators.store_operator import OverStore
from tailrace.operators.user_code.window_function import UserFunction
from tailrace.operators.user_code.windows import KnownWindows
from tailrace.state.append.aligned import AppendAlignedStore
from tailrace.state.append.pane_pieces import Piece
from tailrace.state.layout import HASH, PANE, VALID
from tailrace.state.rows.gather import spread
from tailrace.state.rows.groups import key_offsets
from tailrace.state.rows.rows import Rows
from tailrace.state.sections.sections import to_section

_FOREVER = 2**63 - 1
_NOTHING = np.empty((0, 2), np.int64)
_MIX = np.int64(-7046029254386353131)
_NULLS_MIX = np.int64(-4417276706812531889)


class WindowRows(OverStore[AppendAlignedStore]):
    on_close: Callable[[np.ndarray, int], None] | None = None
    """Called in append mode, where accesses are recorded: the hashes of keys whose window closes, and its start."""

    def __init__(self, spec: AggregateSpec, shards: Iterable[int], resources: Resources) -> None:
        window = spec.pane_windows
        assert window is not None
        self.spec = spec
        self._window = window
        self._layout = spec.layout()
        self._known = None if spec.custom_window is None else KnownWindows(spec.name, self._layout)
        self._results = GroupResults(spec)
        self._function = None if spec.function is None else UserFunction(spec)
        self._resources = resources
        super().__init__(pane_store(self._layout, shards, spec.shards, resources))
        self._count = 0  # of the newest epoch's rows
        self._appended = _NOTHING  # in update mode, (pane, what distinguishes windows of keys) of these rows

    def updated(self, epoch: int) -> int:
        self._check_newest(epoch)
        return self._count

    # One epoch -------------------------------------------------------------------------------------------------------

    def apply(self, epoch: int, frames: Sequence[Frame]) -> None:
        """Keep the rows of the committed attempts."""
        if self._known is not None:
            self._known.see(epoch, [frame.rows for frame in frames], self.horizon)
        self._store.append(epoch, [frame.parts() for frame in frames])
        self._count = sum(frame.n for frame in frames)
        if self.spec.emit_changed:
            words = [np.stack([frame.rows[:, PANE], self._group_marks(frame.rows)], axis=1) for frame in frames]
            self._appended = np.concatenate(words) if words else _NOTHING

    def _group_marks(self, words: np.ndarray) -> np.ndarray:
        """A number that distinguishes keys of one pane, but for collisions; of a user's windows, also these.

        With which keys are null: Spark's hash skips nulls, so that ``(1, null)`` and ``(null, 1)`` have the same.
        """
        marks: np.ndarray = words[:, HASH] ^ (words[:, VALID] & self._layout.key_mask) * _NULLS_MIX
        if self._known is not None:
            marks ^= words[:, self._layout.keys[-1].word] * _MIX
        return marks

    def advance(self, epoch: int, late_before: int, watermark: int) -> Sequence[pa.RecordBatch]:
        """Emit the windows that changed, that close by ``watermark``, or all; drop what no later row can reach."""
        self._check_newest(epoch)
        with self.spec.naming_overflow(epoch):
            emitted = EpochOutput(self._output(epoch, late_before, watermark), self._resources)
        if self.spec.closes and watermark > MIN_MICROS:
            self._store.expire(self._window.first_open_pane(watermark))
        return emitted

    def undo(self, epoch: int) -> None:
        self._count, self._appended = 0, _NOTHING
        super().undo(epoch)

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        batches = list(batches)
        if self._known is not None:
            self._known.restore(batches)
        super().restore(shard, batches, horizon)

    # Output ----------------------------------------------------------------------------------------------------------

    def _output(self, epoch: int, late_before: int, watermark: int) -> Iterator[pa.RecordBatch]:
        window, changed = self._window, self.spec.emit_changed
        if changed:
            panes = np.unique(self._appended[:, 0])
            _, starts = window.holding(panes, late_before)
        elif self.spec.complete:
            _, starts = window.holding(self._store.panes(_FOREVER), MIN_MICROS)
        else:
            _, starts = window.holding(self._store.panes(watermark + 1), late_before, watermark)
        for start in np.unique(starts):
            if self._function is not None and self._known is None and self.on_close is None:
                # It sees whole windows, and in an order of their own: nobody needs the rows by key.
                for table in self._store.read_made(int(start), int(start) + window.size, self._table):
                    yield from self._function.of_window(table, int(start), int(start) + window.length, epoch)
                continue
            # A function sees whole windows: what it makes of one belongs to no key.
            hashes = self._appended_in(int(start)) if changed and self._function is None else None
            for piece in self._store.read(int(start), int(start) + window.size):
                if self.on_close is not None:
                    self.on_close(piece.words[key_offsets(piece, self._layout)[:-1], HASH], int(start))
                groups = self._groups(piece, hashes)
                if not len(groups):
                    continue
                starts, ends = window_bounds(groups, self.spec, int(start))
                if self._function is not None:
                    yield from self._function.by_window(groups, starts, ends, epoch)
                else:
                    yield self._results.batch(groups, window_struct(starts, self.spec, ends))

    def _table(self, piece: Piece) -> pa.Table:
        assert self._function is not None
        return self._function.table(spread(piece.sources, self._layout))

    def _appended_in(self, start: int) -> np.ndarray:
        """What distinguishes the keys whose window at ``start`` the newest epoch changed."""
        panes = self._appended[:, 0]
        inside = (panes >= start) & (panes < start + self._window.size)
        return np.unique(self._appended[inside, 1])

    def _groups(self, rows: Rows, hashes: np.ndarray | None) -> Groups:
        """The rows of a piece by key; with ``hashes`` only keys that have one of them."""
        offsets = key_offsets(rows, self._layout)
        section = to_section(rows, self._layout)
        names = [field.name for field in (*self.spec.kept_keys, *self.spec.rows)]
        groups = Groups(dict(zip(names, section.columns[2:], strict=True)), offsets)
        return groups if hashes is None else groups.where(np.isin(self._group_marks(rows.words[offsets[:-1]]), hashes))
