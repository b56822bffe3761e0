"""Functions of whole groups over sessions, on the append store for unaligned windows (AUR).

Invariants
- A row is appended once, to the list of its key and pane; panes are as wide as the gap. Which lists make a session, and
  when it ends, ``open_sessions`` knows from a small record for each list: its first and last event time, and its rows.
- The records are made of the rows: the lists alone are checkpointed, and both move together, epoch by epoch.
- A list is expected to be read the gap after its last row: that is what the store reads ahead by.
- Sessions are read back some at a time, and whole: what is read together has a bound that only a single one can pass.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from tailrace.errors import SumOverflowError
from tailrace.ids import MIN_MICROS
from tailrace.operators.aggregate.finish import window_struct
from tailrace.operators.aggregate.holistic.results import GroupResults
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.ingest.frame import Frame
from tailrace.operators.rows.groups import Groups
from tailrace.operators.session.open_sessions import OpenSessions, Sessions
from tailrace.operators.user_code.window_function import UserFunction
from tailrace.state.append import list_sections
from tailrace.state.append.unaligned import AppendUnalignedStore
from tailrace.state.layout import VALID, Merge, RecordLayout, record_layout
from tailrace.state.metrics import Metrics, added
from tailrace.state.rows.gather import spread
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.state.sections.sections import to_section
from tailrace.state.tuning import DEFAULT_TUNING, Tuning
from tailrace.types import BIGINT

READ_ROWS_MAX = 1 << 17
_NO_NUMBERS = np.empty(0, np.int64)
_INDEX_SHARE = 4
"""Of the memory budget, the lists get all but one part in so many: the rest is for the records about them."""


class SessionRows:
    def __init__(
        self,
        spec: AggregateSpec,
        shards: Iterable[int],
        *,
        memory_bytes: int,
        folder: str,
        threads: int = 2,
        tuning: Tuning = DEFAULT_TUNING,
    ) -> None:
        assert spec.session_gap is not None and spec.time_column is not None
        self.spec = spec
        self._gap = spec.session_gap
        self._layout = spec.layout()
        self._index_layout = _index_layout(spec)
        times = [row.name for row in spec.rows].index(spec.time_column.name)
        self._time_word = self._layout.accumulators[times].word
        self._results = GroupResults(spec)
        self._function = None if spec.function is None else UserFunction(spec)
        shards = tuple(shards)
        share = memory_bytes // _INDEX_SHARE
        self._open = OpenSessions(
            self._index_layout,
            spec.session_gap,
            shards,
            threads,
            shard_count=spec.shards,
            memory_bytes=share,
            folder=folder,
            tuning=tuning,
        )
        self._lists = AppendUnalignedStore(
            self._layout,
            shards,
            shard_count=spec.shards,
            memory_bytes=memory_bytes - share,
            folder=folder,
            threads=threads,
            tuning=tuning,
        )
        self._appended = 0

    @property
    def shards(self) -> frozenset[int]:
        return self._lists.shards

    @property
    def horizon(self) -> int:
        """Lists go one by one: no pane is known to be gone everywhere."""
        return self._lists.horizon

    @property
    def rows(self) -> int:
        return self._lists.rows

    @property
    def nbytes(self) -> int:
        return self._lists.nbytes + self._open.nbytes

    @property
    def disk_bytes(self) -> int:
        return self._lists.disk_bytes + self._open.disk_bytes

    def metrics(self) -> Metrics:
        return added(self._lists.metrics(), self._open.store.metrics())

    def updated(self, epoch: int) -> int:
        self._check_newest(epoch)
        return self._appended

    # One epoch -------------------------------------------------------------------------------------------------------

    def apply(self, epoch: int, frames: Sequence[Frame]) -> None:
        """Keep the rows of the winning attempts."""
        triggers = [frame.rows[:, self._time_word] + self._gap for frame in frames]
        self._lists.append(epoch, [frame.parts() for frame in frames], triggers)
        self._open.merge(epoch, [(self._records(Rows(frame.rows, frame.heap)), frame.bounds) for frame in frames])
        self._appended = sum(frame.n for frame in frames)

    def advance(self, epoch: int, late_before: int, watermark: int) -> list[pa.RecordBatch]:
        """Emit the sessions that changed, or that end by ``watermark``; drop those that do."""
        self._check_newest(epoch)
        changed = self.spec.emit_changed
        try:
            found = self._open.changed() if changed else ()
            emitted = [batch for sessions in found for batch in self._read(epoch, sessions, remove=False)]
            if self.spec.watermarked and watermark > MIN_MICROS:
                for ended in self._open.ended(watermark):
                    if changed and ended:
                        self._lists.remove(self._targets(ended))
                    elif not changed:
                        emitted += self._read(epoch, ended, remove=True)
                    self._open.remove(ended)
        except SumOverflowError as error:
            raise SumOverflowError(
                f"operator {self.spec.name}, epoch {epoch}: {error}. Nothing of the epoch was kept. Cast the column to "
                "decimal before the sum, or set spark.sql.ansi.enabled=false to let sums wrap."
            ) from error
        return emitted

    def delta(self, epoch: int) -> dict[int, pa.RecordBatch]:
        self._check_newest(epoch)
        return self._lists.delta()

    def undo(self, epoch: int) -> None:
        self._lists.undo(epoch)
        self._open.undo(epoch)

    def forget(self, epoch: int) -> None:
        self._lists.forget(epoch)
        self._open.forget(epoch)

    # Shards ----------------------------------------------------------------------------------------------------------

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        batches = list(batches)
        left = list_sections.applied(self._layout, batches, horizon, keep_tombstones=False)
        self._open.restore_rows(shard, self._records(left.rows))
        self._lists.restore(shard, batches, horizon)

    def drop_shard(self, shard: int) -> None:
        self._lists.drop_shard(shard)
        self._open.drop_shard(shard)

    def close(self) -> None:
        self._lists.close()
        self._open.close()

    def _check_newest(self, epoch: int) -> None:
        if self._lists.newest_epoch != epoch:
            raise ValueError(f"epoch {epoch} is not the one last applied ({self._lists.newest_epoch})")

    # Records about lists ---------------------------------------------------------------------------------------------

    def _records(self, rows: Rows) -> Rows:
        """For each row, what it adds to the record of its list. Keys lie in the same words in both layouts."""
        layout = self._index_layout
        low, high, count = layout.accumulators
        words = np.empty((len(rows), layout.words), np.int64)
        words[:, : low.word] = rows.words[:, : low.word]
        words[:, VALID] &= layout.key_mask
        words[:, VALID] |= 1 << low.bit | 1 << high.bit | 1 << count.bit
        words[:, low.word] = words[:, high.word] = rows.words[:, self._time_word]
        words[:, count.word] = 1
        return Rows(words, rows.heap)

    def _targets(self, found: Sequence[Sessions]) -> Rows:
        """The lists of these records."""
        records = concat_rows([sessions.table.copy(sessions.rows) for sessions in found], self._index_layout)
        words = np.zeros((len(records), self._layout.words), np.int64)
        first = self._index_layout.accumulators[0].word
        words[:, :first] = records.words[:, :first]
        words[:, VALID] &= self._layout.key_mask
        return Rows(words, records.heap)

    # Emission --------------------------------------------------------------------------------------------------------

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
            rows, row_edges = self._lists.read(some, remove=remove)
            section = to_section(rows, self._layout)
            names = [field.name for field in (*self.spec.keys, *self.spec.rows)]
            groups = Groups(dict(zip(names, section.columns[2:], strict=True)), row_edges[edges - edges[0]])
            yield self._results.batch(groups, bounds)
            low = high

    def _table(self, targets: Rows, session: np.ndarray, windows: pa.Array, remove: bool) -> pa.Table:
        """The rows of lists as the function sees them. ``session``: the number of each list's, among ``windows``."""
        assert self._function is not None
        found = self._lists.read_slices(targets, remove=remove)
        numbers = [np.repeat(session[part.targets], part.slices.hi - part.slices.lo) for part in found]
        rows = spread([part.slices for part in found], self._layout)
        return self._function.table(rows, np.concatenate([_NO_NUMBERS, *numbers]), windows)


def _index_layout(spec: AggregateSpec) -> RecordLayout:
    assert spec.time_column is not None
    time = spec.time_column.type
    return record_layout(spec.keys, [(Merge.MIN, time), (Merge.MAX, time), (Merge.ADD, BIGINT)], ansi=False)
