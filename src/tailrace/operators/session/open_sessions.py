"""Open sessions of keys: what of the state makes which session, and when it ends.

A session is the rows of a key of which each comes at most the gap after the one before; it ends the gap after its last.
Bounds and merging are those of Spark's ``session_window``: ``[first, last + gap)``, and a row exactly at the end still
belongs to it.

Invariants
- One record for each key and pane, panes as wide as the gap. So a record is of one session only, rows may come in any
  order, and sessions that a row joins need no change: see ``state.hash_table.session_kernels``.
- A session ends with its newest record. Each record has one deadline set, at or before its own last time and gap, which
  gives the pane; when the watermark passes that, the record is looked at: gone, or of a session that goes on in the
  next pane: nothing to do; touched since: looked at later; else its session has ended. So closing costs what was
  touched and what ends, never what is open.
- Deadlines are no state: they are made anew from the records, and undoing gives back those that were taken.
- Which sessions end next, as far as is known now, the earliest deadlines say: whose record ends its session, and by
  when, is looked up in the records themselves. So the estimate is of whole sessions, whatever pane a row came for.
- Memory: an eighth is for deadlines, the rest for records; what is more of either lies on disk. Where some records do,
  sessions are put together from copies (see ``whole_sessions``), some at a time.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tailrace.ids import MIN_MICROS
from tailrace.operators.resources import Resources
from tailrace.operators.session.former_sessions import FormerSessions, Found, former_of_panes, records_before
from tailrace.operators.session.whole_sessions import WholeSessions, hash_pieces
from tailrace.operators.store_operator import OverStore
from tailrace.operators.timers.deadlines import HASH as ENTRY_HASH
from tailrace.operators.timers.deadlines import TIME as ENTRY_TIME
from tailrace.operators.timers.deadlines import Deadlines
from tailrace.state.hash_table.table import Table
from tailrace.state.layout import HASH, RecordLayout
from tailrace.state.read_modify_write.record_copies import RecordCopies
from tailrace.state.read_modify_write.scan import every_pane, scan_keys
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows.arrange import row_numbers
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.state.sections.sections import to_section

_UNDO_EPOCHS = 2
_DEADLINES_SHARE = 8
_PIECE_ROWS = 1 << 16
"""Records looked at together where sessions are put together from copies."""
_LOOKS_MAX = 4
"""For each record of sessions that end next, at most so many deadlines: some are of records that were touched since."""


@dataclass(frozen=True)
class Sessions:
    """Sessions of one shard: session ``s`` is records ``rows[offsets[s]:offsets[s + 1]]``, newest first.

    ``table`` is the store's own, or that of ``copies``.
    """

    shard: int
    table: Table
    rows: np.ndarray
    offsets: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    copies: RecordCopies | None = None

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def sizes(self) -> np.ndarray:
        return np.diff(self.offsets)

    def where(self, chosen: np.ndarray) -> Sessions:
        """Those that are marked."""
        offsets = np.concatenate([[0], np.cumsum(self.sizes[chosen])])
        rows = self.rows[np.repeat(chosen, self.sizes)]
        return replace(self, rows=rows, offsets=offsets, starts=self.starts[chosen], ends=self.ends[chosen])

    def in_order(self) -> Sessions:
        """By hash and start, whatever order their records lie in."""
        order = np.lexsort((self.starts, self.table.word(self.rows[self.offsets[:-1]], HASH)))
        rows = self.rows[row_numbers(self.offsets[order], self.offsets[order + 1])]
        offsets = np.concatenate([[0], np.cumsum(self.sizes[order])])
        return replace(self, rows=rows, offsets=offsets, starts=self.starts[order], ends=self.ends[order])


class OpenSessions(OverStore[ReadModifyWriteStore]):
    """``layout``: its first two accumulators are the smallest and the largest event time.

    ``shard_count``: of the query, by which the shard of a hash is found.
    """

    def __init__(
        self,
        layout: RecordLayout,
        gap: int,
        shards: Iterable[int],
        shard_count: int,
        resources: Resources,
        *,
        changelog: bool = False,
    ) -> None:
        """``changelog``: ``former`` is asked for."""
        deadlines, records = resources.share(_DEADLINES_SHARE)
        self._low, self._high = layout.accumulators[0].word, layout.accumulators[1].word
        store = ReadModifyWriteStore(
            layout,
            shards,
            records.threads,
            _UNDO_EPOCHS,
            removes=True,
            noted_word=self._high,
            memory_bytes=records.memory_bytes,
            folder=records.folder,
            tuning=records.tuning,
        )
        self._gap = gap
        self._shard_count = shard_count
        self._deadlines = Deadlines(shard_count, deadlines.memory_bytes, deadlines.folder)
        super().__init__(store, self._deadlines)
        self._epochs: list[int] = []  # those that can be undone
        self._looks = 1  # deadlines for each record of sessions that end next, as it was enough the last time
        self._changelog = changelog
        self._before: Table | None = None  # of a changelog: see ``records_before``

    @property
    def nbytes(self) -> int:
        return super().nbytes + (0 if self._before is None else self._before.nbytes)

    def merge(self, epoch: int, frames: Sequence[tuple[Rows, np.ndarray]]) -> Sequence[tuple[Rows, np.ndarray]]:
        """Gives the rows as they were merged."""
        if len(self._epochs) >= _UNDO_EPOCHS and epoch > self._epochs[-1]:
            self.forget(self._epochs[-_UNDO_EPOCHS])
        if self._changelog:
            self._before = records_before(self._store, frames)
        self._store.merge(epoch, frames)
        self._epochs.append(epoch)
        if self._store.made:
            made = np.concatenate(list(self._store.made.values()))
            self._deadlines.put(made[:, 0] + self._gap, made[:, 1])
        return frames

    def changed(self) -> Iterator[list[Sessions]]:
        """The sessions that the newest epoch changed, whole, some at a time."""
        changed = self._store.changes.in_tables()
        if self._store.in_memory:
            yield [self._sessions(shard, table, rows) for shard, table, rows in changed]
            return
        parts = (
            (shard, rows[piece])
            for shard, table, rows in changed
            for piece in hash_pieces(table.word(rows, HASH), _PIECE_ROWS)
        )
        yield from grouped(self._around(shard, rows) for shard, rows in parts)

    def _around(self, shard: int, rows: np.ndarray) -> Sessions:
        whole = self._whole(shard)
        return self._of_whole(shard, whole, whole.around(whole.copies.add_rows(rows)))

    def every(self) -> Iterator[list[Sessions]]:
        """All sessions, some at a time. Nothing changes."""
        if self._store.in_memory:
            tables = self._store.tables()
            yield from grouped(self._sessions(shard, table, table.all_rows()) for shard, table in tables)
            return
        yield from grouped(self._copied(records) for records in scan_keys(self._store, every_pane))

    def _copied(self, records: Rows) -> Sessions:
        """The sessions of keys of one shard, of which these are all records."""
        table = table_of(records, self._store.layout)
        return self._sessions(int(records.words[0, HASH] % self._shard_count), table, table.all_rows())

    def former(self, found: Sequence[Sessions]) -> FormerSessions:
        """What sessions that the newest epoch changed were before it."""
        assert self._before is not None, "no changelog is kept"
        return former_of_panes(self._all(found), self._before, self._gap, self._low, self._high)

    def _all(self, found: Sequence[Sessions]) -> Found:
        records = concat_rows([sessions.table.copy(sessions.rows) for sessions in found], self._store.layout)
        return Found(records, np.concatenate([sessions.sizes for sessions in found]))

    def ended(self, watermark: int) -> Iterator[list[Sessions]]:
        """The sessions that end at or before ``watermark``, some at a time. Each is to be removed before the next."""
        epoch = self._store.newest_epoch
        assert epoch is not None, "closing before any epoch was opened"
        return self._ended_by(self._deadlines.take_entries(epoch, watermark), watermark, taken=True)

    def next_to_end(self, records: int) -> list[Sessions]:
        """Sessions that end next if nothing touches them, about so many records or fewer. Nothing changes.

        None that is left out ends before all of these.
        """
        while True:
            entries = self._deadlines.earliest(self._looks * records)
            # A deadline is at or before the end of its record: no session without one among these ends by then.
            until = int(entries[:, ENTRY_TIME].max(initial=MIN_MICROS))
            found = [sessions for group in self._ended_by(entries, until, taken=False) for sessions in group]
            count = sum(len(sessions.rows) for sessions in found)
            if count > 2 * records and self._looks > 1:
                self._looks //= 2
            if count >= records or len(entries) < self._looks * records or self._looks == _LOOKS_MAX:
                return found
            self._looks *= 2

    def _ended_by(self, entries: np.ndarray, until: int, *, taken: bool) -> Iterator[list[Sessions]]:
        """Of the sessions that these deadlines are of, those that end at or before ``until``, some at a time.

        ``taken``: the deadlines are gone, so that records which are not due yet need new ones.
        """
        hashes = np.ascontiguousarray(entries[:, ENTRY_HASH])
        panes = (entries[:, ENTRY_TIME] - self._gap) // self._gap * self._gap
        shards = hashes % self._shard_count
        order = np.argsort(shards, kind="stable")
        hashes, panes = hashes[order], panes[order]
        tables = self._store.tables()
        edges = np.searchsorted(shards[order], [shard for shard, _ in tables])
        ends = np.searchsorted(shards[order], [shard for shard, _ in tables], side="right")
        looked_at = [(*each, slice(lo, hi)) for each, lo, hi in zip(tables, edges, ends, strict=True) if lo < hi]
        if self._store.in_memory:
            found = []
            for shard, table, at in looked_at:
                due = self._due(table, np.unique(table.with_hashes(hashes[at], panes[at])), until, taken=taken)
                found.append(self._of(shard, table, table.sessions(due, *self._how, ended=True)))
            yield [sessions for sessions in found if len(sessions)]
            return

        def ended_anywhere(shard: int, hashes: np.ndarray, panes: np.ndarray) -> Sessions:
            whole = self._whole(shard)
            due = self._due(whole.table, whole.copies.add_with_hashes(hashes, panes), until, taken=taken)
            return self._of_whole(shard, whole, whole.ended(due))

        yield from grouped(
            ended_anywhere(shard, hashes[at][piece], panes[at][piece])
            for shard, _, at in looked_at
            for piece in hash_pieces(hashes[at], _PIECE_ROWS)
        )

    def _due(self, table: Table, rows: np.ndarray, until: int, *, taken: bool) -> np.ndarray:
        """Those of the records that nothing has touched since; the others are looked at again later."""
        deadlines = table.word(rows, self._high) + self._gap
        late = deadlines > until
        if taken:
            self._deadlines.put(deadlines[late], table.word(rows[late], HASH))
        due: np.ndarray = rows[~late]
        return due

    def remove(self, ended: Iterable[Sessions]) -> None:
        for sessions in ended:
            if sessions.copies is None:
                self._store.remove(sessions.shard, sessions.rows)
            else:
                sessions.copies.remove(sessions.rows)

    def undo(self, epoch: int) -> None:
        super().undo(epoch)
        self._before = None
        self._epochs = [each for each in self._epochs if each < epoch]

    def forget(self, epoch: int) -> None:
        super().forget(epoch)
        self._epochs = [each for each in self._epochs if each > epoch]

    # Shards ----------------------------------------------------------------------------------------------------------

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        """Build a shard from its sections, oldest first."""
        if shard in self._store.shards:
            self.drop_shard(shard)

        def look(table: Table) -> None:
            rows = table.all_rows()
            self._deadlines.restore(shard, table.word(rows, self._high) + self._gap, table.word(rows, HASH))

        self._store.restore(shard, batches, horizon, look)

    def restore_rows(self, shard: int, rows: Rows) -> None:
        """Build a shard from partials."""
        table = table_of(rows, self._store.layout)
        self._restore_records(shard, table.copy(table.changed_rows()))

    def _restore_records(self, shard: int, records: Rows) -> None:
        self.restore(shard, [to_section(records, self._store.layout)], self._store.horizon)

    # Sessions --------------------------------------------------------------------------------------------------------

    def _whole(self, shard: int) -> WholeSessions:
        return WholeSessions(RecordCopies(self._store, shard), *self._how)

    @property
    def _how(self) -> tuple[int, int, int]:
        return self._gap, self._low, self._high

    def _sessions(self, shard: int, table: Table, rows: np.ndarray) -> Sessions:
        """The sessions that these records are of."""
        return self._of(shard, table, table.sessions(rows, *self._how, ended=False))

    def _of_whole(self, shard: int, whole: WholeSessions, found: tuple[np.ndarray, np.ndarray]) -> Sessions:
        return self._of(shard, whole.table, found, whole.copies)

    def _of(
        self,
        shard: int,
        table: Table,
        found: tuple[np.ndarray, np.ndarray],
        copies: RecordCopies | None = None,
    ) -> Sessions:
        rows, offsets = found
        starts = table.word(rows[offsets[1:] - 1], self._low)
        ends = table.word(rows[offsets[:-1]], self._high) + self._gap
        return Sessions(shard, table, rows, offsets, starts, ends, copies)


def table_of(rows: Rows, layout: RecordLayout) -> Table:
    table = Table(layout, rows_expected=len(rows))
    table.begin(len(rows))
    table.merge(rows.words, rows.heap, 0, len(rows))
    return table


def grouped(found: Iterable[Sessions]) -> Iterator[list[Sessions]]:
    """Together, as long as they are few records."""
    group: list[Sessions] = []
    records = 0
    for sessions in found:
        if len(sessions):
            group.append(sessions)
            records += len(sessions.rows)
        if records >= _PIECE_ROWS:
            yield group
            group, records = [], 0
    if group:
        yield group
