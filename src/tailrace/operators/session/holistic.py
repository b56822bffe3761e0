"""Functions of whole groups over sessions, on the append store for unaligned windows (AUR).

Invariants
- A row is appended once, to the list of its key and pane; panes are as wide as the gap. Which lists make a session, and
  when it ends, ``open_sessions`` knows from a small record for each list: its first and last event time, and its rows.
- The records are made of the rows: the lists alone are checkpointed, and both move together, epoch by epoch.
- A list is read when its session ends: the gap after the last row of any of its lists. So the store reads ahead those
  of the sessions that end next, which ``open_sessions`` knows.
- Sessions are read back some at a time, and whole: what is read together has a bound that only a single one can pass.
- In output mode complete all are read in every epoch, and none goes.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tailrace.ids import MIN_MICROS
from tailrace.operators.aggregate.finish import window_struct
from tailrace.operators.aggregate.holistic.list_operator import INDEX_SHARE, ListOperator, index_records, lists_of
from tailrace.operators.aggregate.holistic.results import GroupResults, Results
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.ingest.frame import Frame
from tailrace.operators.resources import Resources
from tailrace.operators.session.changelog import change_types, with_change_types
from tailrace.operators.session.dynamic_sessions import DynamicSessions
from tailrace.operators.session.former_sessions import FormerSessions
from tailrace.operators.session.open_sessions import OpenSessions, Sessions
from tailrace.operators.windows.session_window import SessionWindowSpec
from tailrace.state.append import list_sections
from tailrace.state.layout import PANE, Merge, RecordLayout, record_layout
from tailrace.state.rows.arrange import row_numbers
from tailrace.state.rows.gather import spread
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.types import BIGINT

READ_ROWS_MAX = 1 << 17
_NO_NUMBERS = np.empty(0, np.int64)


class SessionRows(ListOperator):
    def __init__(
        self, spec: AggregateSpec, shards: Iterable[int], resources: Resources, results: Results | None = None
    ) -> None:
        assert spec.time_column is not None
        self._index_layout = _index_layout(spec)
        index, lists = resources.share(INDEX_SHARE)
        shards = tuple(shards)
        self._open = self._open_sessions(spec, shards, index)
        if spec.changelog:
            results = GroupResults(replace(spec, changelog=False))
        super().__init__(spec, shards, lists, self._open, results=results)
        names = [row.name for row in spec.rows]
        dynamic = spec.dynamic_session
        bounds = (spec.time_column.name, spec.time_column.name if dynamic is None else dynamic.ends)
        self._bound_words = [self._layout.accumulators[names.index(name)].word for name in bounds]

    def _open_sessions(self, spec: AggregateSpec, shards: tuple[int, ...], given: Resources) -> OpenSessions:
        layout = self._index_layout
        self._list_word = PANE
        if isinstance(spec.window, SessionWindowSpec):
            return OpenSessions(layout, spec.window.gap, shards, spec.shards, given, changelog=spec.changelog)
        self._list_word = layout.accumulators[3].word
        return DynamicSessions(layout, shards, spec.shards, given, changelog=spec.changelog, list_word=self._list_word)

    # One epoch -------------------------------------------------------------------------------------------------------

    def apply(self, epoch: int, frames: Sequence[Frame]) -> None:
        """Keep the rows of the committed attempts."""
        given = [frame.parts() for frame in frames]
        merged = self._open.merge(epoch, [(self._records(rows), bounds) for rows, bounds in given])
        if self._list_word != PANE:
            given = [
                (self._of_lists(rows, own.words), bounds)
                for (rows, bounds), (own, _) in zip(given, merged, strict=True)
            ]
        self._store.append(epoch, given)
        self._appended = sum(frame.n for frame in frames)
        if not self.spec.emit_changed and self.spec.closes:  # else they are not read when they end
            self._read_ahead()

    def _read_ahead(self) -> None:
        """Of the sessions that end next if no more rows come for them."""
        lists = self._store.wants_ahead()
        found = self._open.next_to_end(lists) if lists else []
        if found:
            ends = np.concatenate([np.repeat(sessions.ends, sessions.sizes) for sessions in found])
            targets = self._targets(found)
            order = np.argsort(ends, kind="stable")
            self._store.read_ahead(Rows(targets.words[order], targets.heap), lists)

    def _output(self, epoch: int, late_before: int, watermark: int) -> Iterator[pa.RecordBatch]:
        """The sessions that changed, that end by ``watermark``, or all; those that end are dropped."""
        changed = self.spec.emit_changed
        for sessions in self._open.every() if self.spec.complete else ():
            yield from self._read(epoch, sessions, remove=False)
        for sessions in self._open.changed() if changed else ():
            yield from self._read(epoch, sessions, remove=False)
        if not self.spec.closes or watermark == MIN_MICROS:
            return
        for ended in self._open.ended(watermark):
            if changed and ended:
                self._store.remove(self._targets(ended))
            elif not changed:
                yield from self._read(epoch, ended, remove=True)
            self._open.remove(ended)

    # Shards ----------------------------------------------------------------------------------------------------------

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        batches = list(batches)
        left = list_sections.applied(self._layout, batches, horizon, keep_tombstones=False)
        self._open.restore_rows(shard, self._records(left.rows))
        super().restore(shard, batches, horizon)

    # Records about lists ---------------------------------------------------------------------------------------------

    def _records(self, rows: Rows) -> Rows:
        """For each row, what it adds to the record of its list. Keys lie in the same words in both layouts."""
        low, high, count, *_ = self._index_layout.accumulators
        words = index_records(rows, self._index_layout)
        words[:, low.word], words[:, high.word] = (rows.words[:, word] for word in self._bound_words)
        words[:, count.word] = 1
        return Rows(words, rows.heap)

    def _of_lists(self, rows: Rows, records: np.ndarray) -> Rows:
        """Rows in the lists that their records name."""
        words = rows.words.copy(order="C")
        words[:, PANE] = records[:, self._list_word]
        return Rows(words, rows.heap)

    def _targets(self, found: Sequence[Sessions]) -> Rows:
        """The lists of these records."""
        records = concat_rows([sessions.table.copy(sessions.rows) for sessions in found], self._index_layout)
        lists = lists_of(records, self._index_layout, self._layout)
        lists.words[:, PANE] = records.words[:, self._list_word]
        return lists

    # Output ----------------------------------------------------------------------------------------------------------

    def _read(self, epoch: int, found: Sequence[Sessions], *, remove: bool) -> Iterator[pa.RecordBatch]:
        """The output rows of these sessions, of all shards together: one look at the lists serves many of them."""
        if not found:
            return
        if self._function is not None:
            found = [sessions.in_order() for sessions in found]
        count = self._index_layout.accumulators[2].word
        records = np.concatenate([sessions.table.word(sessions.rows, count) for sessions in found])
        offsets = np.concatenate([[0], np.cumsum(np.concatenate([sessions.sizes for sessions in found]))])
        starts = np.concatenate([sessions.starts for sessions in found])
        ends = np.concatenate([sessions.ends for sessions in found])
        targets = self._targets(found)
        former = self._open.former(found) if self.spec.changelog and not remove else None
        rows_before = np.concatenate([[0], np.cumsum(records)])[offsets]
        low = 0
        while low < len(starts):
            high = int(np.searchsorted(rows_before, rows_before[low] + READ_ROWS_MAX, side="right")) - 1
            high = max(high, low + 1)
            edges = offsets[low : high + 1]
            some = Rows(targets.words[edges[0] : edges[-1]], targets.heap)
            bounds = window_struct(starts[low:high], self.spec, ends[low:high])
            if self._function is not None:
                session = np.repeat(np.arange(high - low), np.diff(edges))
                yield from self._function.of_windows(self._table(some, session, bounds, remove), bounds, epoch)
                low = high
                continue
            rows, row_edges = self._store.read(some, remove=remove)
            batch = self._results.batch(self._groups(rows, row_edges[edges - edges[0]]), bounds)
            if former is None:
                yield batch
            else:
                own = former.between(low, high)
                now, before = change_types(own, starts[low:high], ends[low:high])
                yield with_change_types(batch, now)
                if len(own):
                    yield with_change_types(self._former_batch(own, edges[0], rows, row_edges), before)
            low = high

    def _former_batch(
        self, former: FormerSessions, first_list: int, rows: Rows, row_edges: np.ndarray
    ) -> pa.RecordBatch:
        """Sessions of before the epoch, of the rows of the lists from one number on: a list has its oldest rows first,
        and its record of before knows how many there were.
        """
        counts = former.records.words[:, self._index_layout.accumulators[2].word]
        lows = row_edges[former.places - first_list]
        chosen = row_numbers(lows, lows + counts)
        offsets = np.concatenate([[0], np.cumsum(counts)])[former.offsets]
        groups = self._groups(Rows(rows.words[chosen], rows.heap), offsets)
        return self._results.batch(groups, window_struct(former.starts, self.spec, former.ends))

    def _table(self, targets: Rows, session: np.ndarray, windows: pa.Array, remove: bool) -> pa.Table:
        """The rows of lists as the function sees them. ``session``: the number of each list's, among ``windows``."""
        assert self._function is not None
        found = self._store.read_slices(targets, remove=remove)
        numbers = [np.repeat(session[part.targets], part.slices.hi - part.slices.lo) for part in found]
        rows = spread([part.slices for part in found], self._layout)
        return self._function.table(rows, np.concatenate([_NO_NUMBERS, *numbers]), windows)


def _index_layout(spec: AggregateSpec) -> RecordLayout:
    assert spec.time_column is not None
    time = spec.time_column.type
    lists = [] if spec.dynamic_session is None else [(Merge.MIN, time)]
    return record_layout(spec.keys, [(Merge.MIN, time), (Merge.MAX, time), (Merge.ADD, BIGINT), *lists], ansi=False)
