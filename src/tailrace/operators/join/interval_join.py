"""Joins of two streams whose rows meet as they come: by interval, by validity, or by key alone (AUR).

Invariants
- Rows lie in lists by (key, pane), both sides in one store (see ``join_times`` for panes). The store's horizon is the
  watermark of the epoch before: no row that it has passed matches any more, though its pane may still be there.
- Each pair is found once, in the epoch of its later row: right rows look among the left rows of earlier epochs, before
  the epoch's own rows are appended; then left rows look among all right rows.
- A left row of an outer join that has no match is emitted once, in the epoch in which the watermark passes its expiry:
  at once if it has passed it already, or if a null among its keys keeps it from ever matching.
- What is emitted depends on rows and watermarks only: a replayed epoch emits the same rows, in any order.
- Costs grow with the epoch's rows, the panes that these look into, and the rows that lie there.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tailrace.ids import MIN_MICROS
from tailrace.operators.ingest.frame import Frame, by_shard
from tailrace.operators.join import sections as join_sections
from tailrace.operators.join.output import JoinOutput, has_keys
from tailrace.operators.join.probe import Prober
from tailrace.operators.join.spec import LEFT, RIGHT, JoinSpec
from tailrace.operators.join.times import JoinTimes, KnownPanes
from tailrace.operators.join.unmatched import Unmatched
from tailrace.operators.resources import Resources
from tailrace.operators.rows.row_stores import list_store
from tailrace.operators.store_operator import OverStore
from tailrace.state.append.unaligned import AppendUnalignedStore
from tailrace.state.layout import PANE, VALID
from tailrace.state.rows import columns
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.types import BIGINT

_UNDO_EPOCHS = 2
_UNMATCHED_SHARE = 4
"""Left rows that wait for a match get one part in so many of the memory."""
_NUMBERS = 1 << 32
"""Rows of one epoch on one server at most."""


class JoinRows(OverStore[AppendUnalignedStore]):
    def __init__(
        self,
        spec: JoinSpec,
        shards: Iterable[int],
        resources: Resources,
    ) -> None:
        self.spec = spec
        self._layout = spec.kept_layout()
        self._sent_words = spec.layout().words
        self._times = JoinTimes(spec, self._layout)
        self._output = JoinOutput(spec, self._layout)
        shards = list(shards)
        waiting, kept = resources.share(_UNMATCHED_SHARE) if spec.numbered else (None, resources)
        self._unmatched = None if waiting is None else Unmatched(spec, self._times, self._layout, shards, waiting)
        # Nobody knows which list is read next, so that none is read ahead.
        unread = replace(kept, tuning=replace(kept.tuning, read_batch_ratio=0.0))
        beside = [] if self._unmatched is None else [self._unmatched.store]
        super().__init__(list_store(self._layout, shards, spec.shards, unread, _UNDO_EPOCHS), *beside)
        self._known = KnownPanes()
        self._opened: list[tuple[int, int]] = []  # epochs that can be undone, and the horizons before them
        self._prober = Prober(self._store, self._times, self._known)
        self._emitted: list[pa.RecordBatch] = []
        self._arrived = 0

    @property
    def rows(self) -> int:
        """Rows kept; left rows that wait for a match count twice."""
        return self._store.rows + (self._unmatched.store.rows if self._unmatched else 0)

    def updated(self, epoch: int) -> int:
        self._check_newest(epoch)
        return self._arrived

    # One epoch -------------------------------------------------------------------------------------------------------

    def apply(self, epoch: int, frames: Sequence[Frame]) -> None:
        """Match the rows of the committed attempts with what is kept and with each other, and keep them."""
        rows = self._arrivals(epoch, frames)
        sides, keyed = self._times.sides(rows), has_keys(rows, self._layout)
        for side in (LEFT, RIGHT):
            of_side = np.flatnonzero(sides == side)
            own = Rows(rows.words[of_side], rows.heap)
            rows.words[of_side, PANE] = self._times.panes(self._times.moments(own, side), side)
        emitted: list[pa.RecordBatch] = []
        matched = self._right_probe(rows, np.flatnonzero(keyed & (sides == RIGHT)), emitted)
        kept = Rows(rows.words[keyed], rows.heap)
        self._store.append(epoch, [by_shard(kept, self.spec.shards).parts()])
        self._known.add(kept.words[:, PANE])
        single = self._left_probe(rows, np.flatnonzero(keyed & (sides == LEFT)), emitted)
        if self._unmatched is not None:
            single |= ~keyed & (sides == LEFT)
            waiting = self._emit_hopeless(rows, single, keyed, emitted)
            self._unmatched.append(epoch, waiting, matched)
        self._opened = [*self._opened, (epoch, self.horizon)][-_UNDO_EPOCHS:]
        self._known.drop(self._opened[0][1])
        self._emitted, self._arrived = emitted, len(rows)

    def _arrivals(self, epoch: int, frames: Sequence[Frame]) -> Rows:
        """The rows of all frames, numbered where that is needed."""
        parts = []
        for frame in frames:
            words = np.zeros((frame.n, self._layout.words), np.int64)
            words[:, : self._sent_words] = frame.rows
            parts.append(Rows(words, frame.heap))
        rows = concat_rows(parts, self._layout)
        if self.spec.numbered:
            number = self._layout.accumulators[-1]
            rows.words[:, number.word] = epoch * _NUMBERS + np.arange(len(rows))
            rows.words[:, VALID] |= 1 << number.bit
        return rows

    def _right_probe(self, rows: Rows, chosen: np.ndarray, emitted: list[pa.RecordBatch]) -> list[Rows]:
        """Emit pairs of kept left rows with the new right ones; where it matters, return those left rows."""
        matched = []
        for found in self._prober.matches(rows, chosen, RIGHT):
            emitted += self._output.pairs(found.kept, found.kept_at, found.probing, found.at)
            if self._unmatched is not None:
                matched.append(Rows(found.kept.words[np.unique(found.kept_at)], found.kept.heap))
        return matched

    def _left_probe(self, rows: Rows, chosen: np.ndarray, emitted: list[pa.RecordBatch]) -> np.ndarray:
        """Emit pairs of the new left rows with all right ones; return which of the left rows have none."""
        single = np.zeros(len(rows), bool)
        single[chosen] = True
        for found in self._prober.matches(rows, chosen, LEFT):
            emitted += self._output.pairs(found.probing, found.at, found.kept, found.kept_at)
            single[found.source[found.at]] = False
        return single

    def _emit_hopeless(self, rows: Rows, single: np.ndarray, keyed: np.ndarray, emitted: list[pa.RecordBatch]) -> Rows:
        """Emit the left rows that can have no match any more, or never could; return the others that have none."""
        at = np.flatnonzero(single)
        left = Rows(rows.words[at], rows.heap)
        hopeless = ~keyed[at] | self._times.moments(left, LEFT).past(self.horizon)
        emitted += self._output.unmatched(left, np.flatnonzero(hopeless))
        return Rows(left.words[~hopeless], left.heap)

    def advance(self, epoch: int, late_before: int, watermark: int) -> list[pa.RecordBatch]:
        """Emit the epoch's pairs, and left rows that no row can match by now; then drop what none can match."""
        self._check_newest(epoch)
        emitted, self._emitted = self._emitted, []
        if self.spec.watermarked and watermark > max(self.horizon, MIN_MICROS):
            if self._unmatched is not None:
                for rows, eviction in self._unmatched.eviction(watermark):
                    emitted += self._output.unmatched(rows, eviction)
                self._unmatched.store.expire(watermark)
            self._store.expire(watermark)
        return emitted

    def delta(self, epoch: int) -> dict[int, pa.RecordBatch]:
        self._check_newest(epoch)
        unmatched = self._unmatched.store.delta() if self._unmatched else {}
        return join_sections.united(self._layout, self._store.delta(), unmatched)

    def undo(self, epoch: int) -> None:
        self._emitted, self._arrived = [], 0
        self._opened = [opened for opened in self._opened if opened[0] < epoch]
        super().undo(epoch)

    # Shards ----------------------------------------------------------------------------------------------------------

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        parts = [join_sections.divided(batch, self._layout) for batch in batches]
        super().restore(shard, [kept for kept, _ in parts], horizon)
        for kept, _ in parts:
            self._known.add(columns.fixed_words(kept.column("__pane"), BIGINT, None))
        if self._unmatched is not None:
            self._unmatched.store.restore(shard, [unmatched for _, unmatched in parts], horizon)
