"""Incremental aggregates over sessions, on the read-modify-write store.

Invariants
- State is as in ``open_sessions``: a record of accumulators for each key and pane, the first two of them the smallest
  and the largest event time. A session's row is made by merging its records once more.
- Append: a session is emitted, and its records go, in the first epoch whose watermark reaches its end. Update: each
  session that the epoch changed is emitted, with the bounds it has now: one that grew or took in others has a new start
  or end, and nothing is said about the sessions it took in, unless the output is a changelog. Complete: every session
  is emitted in every epoch, and none goes.
- What is emitted depends only on state and watermarks, never on timing: a replayed epoch emits the same rows.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tailrace.ids import MIN_MICROS
from tailrace.operators.aggregate.finish import finish
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.ingest.frame import Frame
from tailrace.operators.output import EpochOutput, output_pieces
from tailrace.operators.resources import Resources
from tailrace.operators.session.changelog import change_types, with_change_types
from tailrace.operators.session.dynamic_sessions import DynamicSessions
from tailrace.operators.session.open_sessions import OpenSessions, Sessions
from tailrace.operators.store_operator import HintedRecords
from tailrace.operators.windows.session_window import SessionWindowSpec
from tailrace.state.hash_table.table import Table
from tailrace.state.layout import PANE
from tailrace.state.rows.rows import Rows, concat_rows


class _Aggregate(HintedRecords, OpenSessions):
    spec: AggregateSpec

    def _take(self, spec: AggregateSpec, resources: Resources) -> None:
        self.spec = spec
        self._layout = spec.layout()
        self._plain = replace(spec, changelog=False)
        self._resources = resources

    def updated(self, epoch: int) -> int:
        self._check_newest(epoch)
        return self._store.changes.count()

    # One epoch -------------------------------------------------------------------------------------------------------

    def apply(self, epoch: int, frames: Sequence[Frame]) -> None:
        """Merge the frames of the committed attempts, in the order in which the driver has named these."""
        with self.spec.naming_overflow(epoch):
            self.merge(epoch, [frame.parts() for frame in frames])

    def advance(self, epoch: int, late_before: int, watermark: int) -> Sequence[pa.RecordBatch]:
        """Emit the sessions that changed, that end by ``watermark``, or all; drop those that end."""
        self._check_newest(epoch)
        with self.spec.naming_overflow(epoch):
            return EpochOutput(self._output(watermark), self._resources)

    # Output ----------------------------------------------------------------------------------------------------------

    def _output(self, watermark: int) -> Iterator[pa.RecordBatch]:
        if self.spec.complete:
            for found in self.every():
                yield from self._finish(found)
            return
        for found in self.changed() if self.spec.emit_changed else ():
            yield from self._changes(found) if self.spec.changelog else self._finish(found)
        if self.spec.closes and watermark > MIN_MICROS:
            for ended in self.ended(watermark):
                if not self.spec.emit_changed:
                    yield from self._finish(ended)
                self.remove(ended)

    def _finish(self, found: Iterable[Sessions]) -> Iterator[pa.RecordBatch]:
        return self._batches(concat_rows([self._merged(sessions) for sessions in found], self._layout))

    def _changes(self, found: Sequence[Sessions]) -> Iterator[pa.RecordBatch]:
        """The sessions as they are, and as they were before the epoch."""
        found = [sessions for sessions in found if len(sessions)]
        if not found:
            return
        former = self.former(found)
        starts, ends = (np.concatenate([getattr(each, name) for each in found]) for name in ("starts", "ends"))
        now, before = change_types(former, starts, ends)
        # Merging turns the order round, shard by shard.
        edges = np.cumsum([len(sessions) for sessions in found])[:-1]
        rows = concat_rows([self._merged(sessions) for sessions in found], self._layout)
        yield from self._batches(rows, np.concatenate([part[::-1] for part in np.split(now, edges)]))
        words = former.records.words[::-1].copy()
        words[:, PANE] = np.repeat(former.starts, np.diff(former.offsets))[::-1]
        yield from self._batches(self._as_one(Rows(words, former.records.heap), len(former)), before[::-1])

    def _batches(self, rows: Rows, types: np.ndarray | None = None) -> Iterator[pa.RecordBatch]:
        """Records of whole sessions as output; ``types``: of a changelog, what is said of each."""
        high, done = self._layout.accumulators[1].word, 0
        for piece in output_pieces(rows):
            batch = finish(piece, self._plain, self._layout, piece.words[:, high] + self._gap)
            yield batch if types is None else with_change_types(batch, types[done : done + len(piece)])
            done += len(piece)

    def _merged(self, sessions: Sessions) -> Rows:
        """One record for each session, the last one first: its pane is now the session's start."""
        rows = sessions.rows[::-1].copy()
        panes = np.repeat(sessions.starts, sessions.sizes)[::-1].copy()
        return self._as_one(sessions.table.copy(rows, panes), len(sessions))

    def _as_one(self, partials: Rows, sessions: int) -> Rows:
        """One record for each of so many sessions, whose records come from the oldest pane on."""
        if len(partials) == sessions:
            return partials
        merged = Table(self._layout, rows_expected=len(partials))
        merged.begin(len(partials))
        merged.merge(partials.words, partials.heap, 0, len(partials))
        return merged.copy(merged.changed_rows())


class SessionAggregate(_Aggregate):
    def __init__(self, spec: AggregateSpec, shards: Iterable[int], resources: Resources) -> None:
        assert isinstance(spec.window, SessionWindowSpec)
        self._take(spec, resources)
        super().__init__(self._layout, spec.window.gap, shards, spec.shards, resources, changelog=spec.changelog)


class DynamicSessionAggregate(_Aggregate, DynamicSessions):
    def __init__(self, spec: AggregateSpec, shards: Iterable[int], resources: Resources) -> None:
        assert spec.dynamic_session is not None
        self._take(spec, resources)
        DynamicSessions.__init__(self, self._layout, shards, spec.shards, resources, changelog=spec.changelog)

    def hint_frame(self, frame: Frame, epoch: int) -> None:
        """Of each key its first part: most have one."""
        rows, bounds = frame.parts()
        words = rows.words.copy()
        words[:, PANE] = 0
        self._store.hint(Rows(words, rows.heap), bounds, epoch)
