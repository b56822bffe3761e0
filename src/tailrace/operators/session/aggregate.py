"""Incremental aggregates over sessions, on the read-modify-write store.

Invariants
- State is as in ``open_sessions``: a record of accumulators for each key and pane, the first two of them the smallest
  and the largest event time. A session's row is made by merging its records once more.
- Append: a session is emitted, and its records go, in the first epoch whose watermark reaches its end. Update: each
  session that the epoch changed is emitted, with the bounds it has now: one that grew or took in others has a new start
  or end, and nothing is said about the sessions it took in.
- What is emitted depends only on state and watermarks, never on timing: a replayed epoch emits the same rows.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from tailrace.ids import MIN_MICROS
from tailrace.operators.aggregate.finish import finish
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.ingest.frame import Frame
from tailrace.operators.output import output_pieces
from tailrace.operators.resources import Resources
from tailrace.operators.session.open_sessions import OpenSessions, Sessions
from tailrace.operators.store_operator import HintedRecords
from tailrace.operators.windows.session_window import SessionWindowSpec
from tailrace.state.hash_table.table import Table
from tailrace.state.rows.rows import Rows, concat_rows


class SessionAggregate(HintedRecords, OpenSessions):
    def __init__(self, spec: AggregateSpec, shards: Iterable[int], resources: Resources) -> None:
        assert isinstance(spec.window, SessionWindowSpec)
        self.spec = spec
        self._layout = spec.layout()
        super().__init__(self._layout, spec.window.gap, shards, spec.shards, resources)

    def updated(self, epoch: int) -> int:
        self._check_newest(epoch)
        return sum(len(rows) for _, _, rows in self._store.changed())

    # One epoch -------------------------------------------------------------------------------------------------------

    def apply(self, epoch: int, frames: Sequence[Frame]) -> None:
        """Merge the frames of the committed attempts, in partition order."""
        with self.spec.naming_overflow(epoch):
            self.merge(epoch, [frame.parts() for frame in frames])

    def advance(self, epoch: int, late_before: int, watermark: int) -> list[pa.RecordBatch]:
        """Emit the sessions that changed, or that end by ``watermark``; drop those that do."""
        self._check_newest(epoch)
        with self.spec.naming_overflow(epoch):
            changed = self.changed() if self.spec.emit_changed else ()
            emitted = [batch for found in changed for batch in self._finish(found)]
            if self.spec.watermarked and watermark > MIN_MICROS:
                for ended in self.ended(watermark):
                    if not self.spec.emit_changed:
                        emitted += self._finish(ended)
                    self.remove(ended)
        return emitted

    # Output ----------------------------------------------------------------------------------------------------------

    def _finish(self, found: Iterable[Sessions]) -> list[pa.RecordBatch]:
        rows = concat_rows([self._merged(sessions) for sessions in found if len(sessions)], self._layout)
        high = self._layout.accumulators[1].word
        return [
            finish(piece, self.spec, self._layout, piece.words[:, high] + self._gap) for piece in output_pieces(rows)
        ]

    def _merged(self, sessions: Sessions) -> Rows:
        """One record for each session, its pane now the session's start: merged from the oldest pane on."""
        rows = sessions.rows[::-1].copy()
        partials = sessions.table.copy(rows, np.repeat(sessions.starts, sessions.sizes)[::-1].copy())
        if len(rows) == len(sessions):
            return partials
        merged = Table(self._layout, rows_expected=len(partials))
        merged.begin(len(partials))
        merged.merge(partials.words, partials.heap, 0, len(partials))
        return merged.copy(merged.changed_rows())
