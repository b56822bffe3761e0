"""Open sessions of keys: what of the state makes which session, and when it ends.

A session is the rows of a key of which each comes at most the gap after the one before; it ends the gap after its last.
Bounds and merging are those of Spark's ``session_window``: ``[first, last + gap)``, and a row exactly at the end still
belongs to it.

Invariants
- One record for each key and pane, panes as wide as the gap. So a record is of one session only, rows may come in any
  order, and sessions that a row joins need no change: see ``state.session_kernels``.
- A session ends with its newest record. Each record has a time set at or before its own last time and gap; when the
  watermark passes that, the record is looked at: gone, or of a session that goes on in the next pane: nothing to do;
  touched since: looked at later; else its session has ended. So closing costs what was touched and what ends, never
  what is open.
- Times are not part of the state: they are made anew from the records, and undoing gives back those that were taken.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.operators.timers import Timers
from tailrace.state.layout import HASH, RecordLayout
from tailrace.state.read_modify_write import ReadModifyWriteStore
from tailrace.state.runs import row_numbers
from tailrace.state.sections import to_section
from tailrace.state.table import Rows, Table

_UNDO_EPOCHS = 2


@dataclass(frozen=True)
class Sessions:
    """Sessions of one shard: session ``s`` is records ``rows[offsets[s]:offsets[s + 1]]``, newest pane first."""

    shard: int
    table: Table
    rows: np.ndarray
    offsets: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def sizes(self) -> np.ndarray:
        return np.diff(self.offsets)

    def in_order(self) -> Sessions:
        """By hash and start, whatever order their records lie in."""
        order = np.lexsort((self.starts, self.table.word(self.rows[self.offsets[:-1]], HASH)))
        rows = self.rows[row_numbers(self.offsets[order], self.offsets[order + 1])]
        offsets = np.concatenate([[0], np.cumsum(self.sizes[order])])
        return Sessions(self.shard, self.table, rows, offsets, self.starts[order], self.ends[order])


class OpenSessions:
    """``layout``: its first two accumulators are the smallest and the largest event time."""

    def __init__(self, layout: RecordLayout, gap: int, shards: Iterable[int], threads: int = 2) -> None:
        self.store = ReadModifyWriteStore(layout, shards, threads, _UNDO_EPOCHS, removes=True)
        self._gap = gap
        self._low, self._high = layout.accumulators[0].word, layout.accumulators[1].word
        self._timers = {shard: Timers() for shard in self.store.shards}
        self._epochs: list[int] = []  # those that can be undone
        self._taken: list[tuple[int, int, np.ndarray]] = []  # epoch, shard, times

    @property
    def nbytes(self) -> int:
        taken = sum(times.nbytes for _, _, times in self._taken)
        return self.store.nbytes + taken + sum(timers.nbytes for timers in self._timers.values())

    def merge(self, epoch: int, frames: Sequence[tuple[Rows, np.ndarray]]) -> None:
        if len(self._epochs) >= _UNDO_EPOCHS and epoch > self._epochs[-1]:
            self.forget(self._epochs[-_UNDO_EPOCHS])
        self.store.merge(epoch, frames)
        self._epochs.append(epoch)
        for shard, table, _ in self.store.changed():
            self._set(shard, table, table.new_rows())

    def changed(self) -> list[Sessions]:
        """The sessions that the newest epoch changed, whole."""
        return [self._sessions(shard, table, rows, ended=False) for shard, table, rows in self.store.changed()]

    def ended(self, watermark: int) -> list[Sessions]:
        """The sessions that end at or before ``watermark``. To be removed in the same epoch."""
        epoch = self.store.newest_epoch
        assert epoch is not None, "closing before any epoch was opened"
        found = []
        for shard, table in self.store.tables():
            times = self._timers[shard].take(watermark)
            if not len(times):
                continue
            self._taken.append((epoch, shard, times))
            rows = np.unique(times[:, 1])
            rows = rows[table.alive(rows)]
            late = self._deadlines(table, rows) > watermark
            self._set(shard, table, rows[late])
            sessions = self._sessions(shard, table, rows[~late], ended=True)
            if len(sessions):
                found.append(sessions)
        return found

    def remove(self, ended: Iterable[Sessions]) -> None:
        for sessions in ended:
            self.store.remove(sessions.shard, sessions.rows)

    def undo(self, epoch: int) -> None:
        self.store.undo(epoch)
        for _, shard, times in (each for each in self._taken if each[0] >= epoch):
            self._timers[shard].put(times[:, 0], times[:, 1])
        self._taken = [each for each in self._taken if each[0] < epoch]
        self._epochs = [each for each in self._epochs if each < epoch]

    def forget(self, epoch: int) -> None:
        self.store.forget(epoch)
        self._taken = [each for each in self._taken if each[0] > epoch]
        self._epochs = [each for each in self._epochs if each > epoch]

    # Shards ----------------------------------------------------------------------------------------------------------

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        """Build a shard from its sections, oldest first."""
        self.store.restore(shard, batches, horizon)
        self._restored(shard)

    def restore_rows(self, shard: int, rows: Rows) -> None:
        """Build a shard from partials."""
        table = Table(self.store.layout, rows_expected=len(rows))
        table.begin(len(rows))
        table.merge(rows.words, rows.heap, 0, len(rows))
        section = to_section(table.copy(table.changed_rows()), self.store.layout)
        self.store.restore(shard, [section], self.store.horizon)
        self._restored(shard)

    def _restored(self, shard: int) -> None:
        self._taken = [each for each in self._taken if each[1] != shard]
        self._timers[shard] = Timers()
        table = dict(self.store.tables())[shard]
        self._set(shard, table, table.rows_of(table.panes(2**63 - 1)))

    def drop_shard(self, shard: int) -> None:
        self.store.drop_shard(shard)
        del self._timers[shard]
        self._taken = [each for each in self._taken if each[1] != shard]

    def _sessions(self, shard: int, table: Table, rows: np.ndarray, *, ended: bool) -> Sessions:
        found, offsets = table.sessions(rows, self._gap, self._low, self._high, ended=ended)
        starts = table.word(found[offsets[1:] - 1], self._low)
        ends = table.word(found[offsets[:-1]], self._high) + self._gap
        return Sessions(shard, table, found, offsets, starts, ends)

    def _deadlines(self, table: Table, rows: np.ndarray) -> np.ndarray:
        return table.word(rows, self._high) + self._gap

    def _set(self, shard: int, table: Table, rows: np.ndarray) -> None:
        self._timers[shard].put(self._deadlines(table, rows), rows)
