"""Joins of two streams by key and window (tumbling, sliding), on the append store for aligned windows (AAR).

Invariants
- Every row of both sides is kept once, in its pane. A window is read when it closes, in bounded pieces that hold whole
  keys; then each left row of a key meets each right row of it. So a pair is emitted once for each window that both lie
  in, and nothing is emitted before.
- In an outer join a row without one of the other side in the window is emitted with nulls, once for each such window;
  in a semi join a left row with one, once for each such window. Nulls among keys match nothing, not even each other.
- Panes go as in ``window_aggregate``: with the last window that holds them.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from tailrace.ids import MIN_MICROS
from tailrace.operators.ingest.frame import Frame, by_shard
from tailrace.operators.join.output import PAIRS_MAX, JoinOutput, counted, has_keys
from tailrace.operators.join.spec import LEFT, RIGHT, JoinSpec
from tailrace.operators.output import EpochOutput
from tailrace.operators.resources import Resources
from tailrace.operators.rows.row_stores import pane_store
from tailrace.operators.store_operator import OverStore
from tailrace.state.append.aligned import AppendAlignedStore
from tailrace.state.layout import HASH, PANE
from tailrace.state.rows.groups import key_offsets
from tailrace.state.rows.rows import Rows


class WindowJoin(OverStore[AppendAlignedStore]):
    on_close: Callable[[np.ndarray, int], None] | None = None
    """Where accesses are recorded: called with the hashes of keys whose windows close, and where these start."""

    def __init__(self, spec: JoinSpec, shards: Iterable[int], resources: Resources) -> None:
        assert spec.window is not None
        self.spec = spec
        self._window = spec.window
        self._layout = spec.kept_layout()
        self._output = JoinOutput(spec, self._layout)
        self._side, self._time = (self._layout.accumulators[i].word for i in (0, 1))
        self._resources = resources
        super().__init__(pane_store(self._layout, shards, spec.shards, resources))
        self._arrived = 0

    def updated(self, epoch: int) -> int:
        self._check_newest(epoch)
        return self._arrived

    # One epoch -------------------------------------------------------------------------------------------------------

    def apply(self, epoch: int, frames: Sequence[Frame]) -> None:
        """Keep the rows of the committed attempts, but those that can never be emitted."""
        self._store.append(epoch, [by_shard(self._kept(frame), self.spec.shards).parts() for frame in frames])
        self._arrived = sum(frame.n for frame in frames)

    def _kept(self, frame: Frame) -> Rows:
        rows = Rows(frame.rows, frame.heap)
        keep = has_keys(rows, self._layout) | np.isin(frame.rows[:, self._side], self.spec.outer_sides)
        words = frame.rows[keep]
        words[:, PANE] = self._window.panes.of(words[:, self._time])
        return Rows(words, frame.heap)

    def advance(self, epoch: int, late_before: int, watermark: int) -> Sequence[pa.RecordBatch]:
        """Emit the windows that close by ``watermark``; then drop what no later row can reach."""
        self._check_newest(epoch)
        if not self.spec.watermarked or watermark == MIN_MICROS:
            return []
        _, starts = self._window.holding(self._store.panes(watermark), late_before, watermark)
        emitted = EpochOutput(self._closed(np.unique(starts).tolist()), self._resources)
        self._store.expire(self._window.first_open_pane(watermark))
        return emitted

    def _closed(self, starts: list[int]) -> Iterator[pa.RecordBatch]:
        for start in starts:
            for piece in self._store.read(start, start + self._window.size):
                if self.on_close is not None:
                    self.on_close(piece.words[key_offsets(piece, self._layout)[:-1], HASH], start)
                yield from self._joined(piece, start)

    def _joined(self, rows: Rows, window: int) -> Iterator[pa.RecordBatch]:
        """The pairs of whole keys in one window."""
        edges = key_offsets(rows, self._layout)
        key = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
        is_left = rows.words[:, self._side] == LEFT
        keyed = has_keys(rows, self._layout)
        # The rows of a key lie together: those of one side, numbered through all keys, do so too.
        lefts, rights = np.flatnonzero(is_left), np.flatnonzero(~is_left)
        before = np.searchsorted(rights, edges)
        counts = np.where(keyed[lefts], np.diff(before)[key[lefts]], 0)
        if self.spec.semi:
            yield from self._output.alone(rows, lefts[counts > 0], LEFT, window)
            return
        for item, right in counted(before[key[lefts]], counts, PAIRS_MAX):
            yield from self._output.pairs(rows, lefts[item], rows, rights[right], window)
        if LEFT in self.spec.outer_sides:
            yield from self._output.alone(rows, lefts[counts == 0], LEFT, window)
        if RIGHT in self.spec.outer_sides:
            matched = keyed[rights] & (np.diff(np.searchsorted(lefts, edges))[key[rights]] > 0)
            yield from self._output.alone(rows, rights[~matched], RIGHT, window)

    def undo(self, epoch: int) -> None:
        self._arrived = 0
        super().undo(epoch)
