"""Joins of two streams whose rows meet as they come: by interval, by validity, or by key alone (AUR).

Invariants
- Rows lie in lists by (key, pane), both sides in one store (see ``times`` for panes). The store's horizon is the
  watermark of the epoch before: no row that it has passed matches any more, though its pane may still be there.
- Each pair is found once, in the epoch of its later row: right rows look among the left rows of earlier epochs, before
  the epoch's own rows are appended; then left rows look among all right rows.
- A row without a match is emitted once, where its side is an outer one, in the epoch in which the watermark passes its
  expiry: at once if it has passed it already, or if a null among its keys keeps it from ever matching.
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
"""Rows that wait for a match get one part in so many of the memory."""
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
        self._unmatched: dict[int, Unmatched] = {}
        kept = resources
        if spec.outer_sides:
            waiting, kept = resources.share(_UNMATCHED_SHARE)
            each, _ = waiting.share(len(spec.outer_sides))
            self._unmatched = {
                side: Unmatched(spec, self._times, self._layout, shards, each, side) for side in spec.outer_sides
            }
        # Nobody knows which list is read next, so that none is read ahead.
        unread = replace(kept, tuning=replace(kept.tuning, read_batch_ratio=0.0))
        beside = [each.store for each in self._unmatched.values()]
        super().__init__(list_store(self._layout, shards, spec.shards, unread, _UNDO_EPOCHS), *beside)
        self._known = KnownPanes()
        self._opened: list[tuple[int, int]] = []  # epochs that can be undone, and the horizons before them
        self._prober = Prober(self._store, self._times, self._known)
        self._emitted: list[pa.RecordBatch] = []
        self._arrived = 0

    @property
    def rows(self) -> int:
        """Rows kept; those that wait for a match count twice."""
        return self._store.rows + sum(each.store.rows for each in self._unmatched.values())

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
        lefts, rights = (np.flatnonzero(keyed & (sides == side)) for side in (LEFT, RIGHT))
        self._emitted, self._arrived = self._joined(epoch, rows, lefts, rights), len(rows)
        self._opened = [*self._opened, (epoch, self.horizon)][-_UNDO_EPOCHS:]
        self._known.drop(self._opened[0][1])

    def _joined(self, epoch: int, rows: Rows, lefts: np.ndarray, rights: np.ndarray) -> list[pa.RecordBatch]:
        """Keep the rows with keys, ``lefts`` and ``rights``; give what the new rows make."""
        emitted: list[pa.RecordBatch] = []
        met: dict[int, list[Rows]] = {LEFT: [], RIGHT: []}  # rows of earlier epochs that have a match now
        single = np.ones(len(rows), bool)
        for found in self._prober.matches(rows, rights, RIGHT):
            emitted += self._output.pairs(found.kept, found.kept_at, found.probing, found.at)
            single[found.source[found.at]] = False
            if LEFT in self._unmatched:
                met[LEFT].append(found.kept_rows)
        self._keep(epoch, Rows(rows.words[np.sort(np.concatenate([lefts, rights]))], rows.heap))
        for found in self._prober.matches(rows, lefts, LEFT):
            emitted += self._output.pairs(found.probing, found.at, found.kept, found.kept_at)
            single[found.source[found.at]] = False
            if RIGHT in self._unmatched:
                met[RIGHT].append(self._of_earlier(epoch, found.kept_rows, single))
        sides = self._times.sides(rows)
        for side, unmatched in self._unmatched.items():
            waiting = self._emit_hopeless(rows, np.flatnonzero(single & (sides == side)), side, emitted)
            unmatched.append(epoch, waiting, met[side])
        return emitted

    def _keep(self, epoch: int, rows: Rows) -> None:
        self._store.append(epoch, [by_shard(rows, self.spec.shards).parts()])
        self._known.add(rows.words[:, PANE])

    def _of_earlier(self, epoch: int, rows: Rows, single: np.ndarray) -> Rows:
        """Of rows that have a match those of earlier epochs; of this epoch's own, it is noted in ``single``."""
        numbers = rows.words[:, self._layout.accumulators[-1].word]
        own = numbers // _NUMBERS == epoch
        single[numbers[own] % _NUMBERS] = False
        return Rows(rows.words[~own], rows.heap)

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

    def _emit_hopeless(self, rows: Rows, single: np.ndarray, side: int, emitted: list[pa.RecordBatch]) -> Rows:
        """Emit rows of one side that can have no match any more, or never could; give the others that have none."""
        own = Rows(rows.words[single], rows.heap)
        hopeless = ~has_keys(own, self._layout) | self._times.moments(own, side).past(self.horizon)
        emitted += self._output.alone(own, np.flatnonzero(hopeless), side)
        return Rows(own.words[~hopeless], own.heap)

    def advance(self, epoch: int, late_before: int, watermark: int) -> list[pa.RecordBatch]:
        """Emit what the epoch's rows make, and rows that none can match by now; then drop what none can match."""
        self._check_newest(epoch)
        emitted, self._emitted = self._emitted, []
        if self.spec.watermarked and watermark > max(self.horizon, MIN_MICROS):
            for side, unmatched in self._unmatched.items():
                for rows, eviction in unmatched.eviction(watermark):
                    emitted += self._output.alone(rows, eviction, side)
                unmatched.store.expire(watermark)
            self._store.expire(watermark)
        return emitted

    def delta(self, epoch: int) -> dict[int, pa.RecordBatch]:
        self._check_newest(epoch)
        unmatched = [each.store.delta() for each in self._unmatched.values()]
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
        for side, unmatched in self._unmatched.items():
            unmatched.store.restore(shard, [join_sections.of_side(each, side) for _, each in parts], horizon)
