"""A user's function of rows and state, on the read-modify-write store: one record a key, whole batches of keys a call.

Invariants
- In every epoch the function is called with all keys that have rows or whose timer has passed, each in one call. What
  it returns as state stays; what it was given and does not return is forgotten. Nobody else is touched.
- Order of an epoch: keys whose time-to-live has passed in processing time are forgotten, before their rows are seen;
  then the calls; then keys whose time-to-live has passed in event time are forgotten.
- What is emitted depends on rows, state and times only, never on what is in memory and what on disk; a function that
  treats each key by itself emits the same whatever keys share a call.
- A call that fails raises before anything of it is kept; whoever called ``advance`` then undoes the epoch.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from tailrace.ids import MIN_MICROS
from tailrace.operators.ingest.frame import Frame
from tailrace.operators.process.call import Arrivals, Caller
from tailrace.operators.process.function import KeysFunction, Moment, ProcessFunction
from tailrace.operators.process.keys import EpochKeys
from tailrace.operators.process.spec import ProcessSpec
from tailrace.operators.process.timers import Hints
from tailrace.operators.resources import Resources
from tailrace.operators.store_operator import HintedRecords, OverStore, RecordSnapshots, record_store
from tailrace.operators.timers.ttl import Clock
from tailrace.state.hash_table.table import Table
from tailrace.state.layout import HASH, record_layout
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows.rows import Rows, concat_rows, no_rows

CALL_ROWS_MAX = 1 << 16
CALL_BYTES_MAX = 32 << 20
"""A call gets about so many rows, those of the state included, and bytes, unless one key alone has more."""

_HINTS_SHARE = 8
"""Times at which records are looked at may take one part in so many of the memory, each kind of them."""


class Process(HintedRecords, RecordSnapshots, OverStore[ReadModifyWriteStore]):
    def __init__(
        self,
        spec: ProcessSpec,
        shards: Iterable[int],
        resources: Resources,
    ) -> None:
        self.spec = spec
        self._sent, self._kept = spec.layout(), spec.kept_layout()
        self._keys = record_layout(spec.keys, [], ansi=False)
        hidden = dict(zip(spec.hidden, self._kept.accumulators, strict=False))
        deadlines, records = resources.share(_HINTS_SHARE, len(hidden) - 1)
        super().__init__(record_store(self._kept, shards, records, removes=True))
        self._timers = self._expiry = None
        if spec.timers is not None:
            column = [field.name for field in spec.state].index(spec.timers)
            timer = self._kept.accumulators[len(hidden) + column]
            self._timers = Hints(self._store, timer, hidden["timer"], spec.shards, deadlines)
        if spec.ttl is not None:
            self._expiry = Hints(self._store, hidden["seen"], hidden["expiry"], spec.shards, deadlines)
        self._companions += self._hints
        self._caller = Caller(spec, self._function(), self._store, self._timers, self._expiry)
        self._frames: Sequence[Frame] = ()
        self._now, self._forget_before = 0, int(MIN_MICROS)

    def _function(self) -> KeysFunction:
        return ProcessFunction(self.spec)

    @property
    def _hints(self) -> list[Hints]:
        return [hints for hints in (self._timers, self._expiry) if hints is not None]

    def updated(self, epoch: int) -> int:
        """Keys that have rows."""
        self._check_newest(epoch)
        hashes = [frame.rows[:, HASH] for frame in self._frames]
        return len(np.unique(np.concatenate(hashes))) if hashes else 0

    # One epoch -------------------------------------------------------------------------------------------------------

    def set_times(self, now: int, forget_before: int) -> None:
        self._now, self._forget_before = now, forget_before

    def apply(self, epoch: int, frames: Sequence[Frame]) -> None:
        """Hold the rows of the committed attempts until ``advance``."""
        self._store.open(epoch)
        self._frames = frames

    def advance(self, epoch: int, late_before: int, watermark: int) -> list[pa.RecordBatch]:
        self._check_newest(epoch)
        spec = self.spec
        if spec.ttl is not None and spec.ttl.clock is Clock.PROCESSING:
            self._forget_expired(epoch)
        until = self._now if spec.timers_clock is Clock.PROCESSING else watermark
        due = self._timers.due(epoch, until) if self._timers is not None and until > MIN_MICROS else []
        frames, self._frames = self._frames, ()
        emitted = self._called(frames, due, Moment(epoch, late_before, self._now, watermark))
        if spec.ttl is not None and spec.ttl.clock is Clock.EVENT:
            self._forget_expired(epoch)
        self._store.hold_budget()
        return emitted

    def undo(self, epoch: int) -> None:
        self._frames = ()
        super().undo(epoch)
        for hints in self._hints:
            hints.undo(epoch)

    def forget(self, epoch: int) -> None:
        super().forget(epoch)
        for hints in self._hints:
            hints.forget(epoch)

    def _forget_expired(self, epoch: int) -> None:
        assert self._expiry is not None
        if self._forget_before > MIN_MICROS:
            for shard, rows in self._expiry.due(epoch, self._forget_before):
                self._store.remove(shard, rows)

    # Calls -----------------------------------------------------------------------------------------------------------

    def _called(
        self, frames: Sequence[Frame], due: list[tuple[int, np.ndarray]], moment: Moment
    ) -> list[pa.RecordBatch]:
        parts, async_io = [frame.parts() for frame in frames], self._store.async_io
        if async_io:
            self._store.begin_reads(parts)
        else:
            self._store.load(parts)
        # Putting rows together changes words, and those of a frame are not ours.
        rows = concat_rows([Rows(frame.rows.copy(), frame.heap) for frame in frames], self._sent)
        tables = dict(self._store.tables())
        records = concat_rows([tables[shard].copy(at) for shard, at in due], self._kept)
        parts_of_keys = [part for part in (rows, records, self._more_keys(moment.epoch)) if len(part)]
        keys = EpochKeys(self._keys, parts_of_keys, self.spec.shards)
        if not len(keys):
            return []
        arrivals = Arrivals(rows, keys.numbers(rows), self._times(rows))
        is_due = np.zeros(len(keys), bool)
        is_due[keys.numbers(records)] = True
        emitted: list[pa.RecordBatch] = []
        for piece in keys.pieces(arrivals.numbers, self._rows_max(rows)):
            if async_io:  # what later calls need is still being read; calls come in the same order all the same
                self._store.load([keys.parts(piece)])
            emitted += self._caller.call(keys, piece, is_due[piece.first : piece.end], arrivals, moment)
        return emitted

    def _more_keys(self, epoch: int) -> Rows:
        """Keys that are called though they have neither rows nor a record that is due."""
        return no_rows(self._keys)

    def _rows_max(self, rows: Rows) -> int:
        average = (rows.words.nbytes + rows.heap.nbytes) / max(1, len(rows))
        return max(1, min(CALL_ROWS_MAX, int(CALL_BYTES_MAX / max(average, 8 * self._kept.words))))

    def _times(self, rows: Rows) -> np.ndarray:
        """Event times of rows; all alike where there is none."""
        column = self.spec.time_column
        if column is None:
            return np.zeros(len(rows), np.int64)
        fields = (*self.spec.keys, *self.spec.rows)
        words = [key.word for key in self._sent.keys] + [place.word for place in self._sent.accumulators]
        return np.ascontiguousarray(rows.words[:, words[fields.index(column)]])

    # Shards ----------------------------------------------------------------------------------------------------------

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        if shard in self._store.shards:
            self.drop_shard(shard)

        def look(table: Table) -> None:
            for hints in self._hints:
                hints.restore(shard, table)

        self._store.restore(shard, batches, horizon, look)

    def drop_shard(self, shard: int) -> None:
        super().drop_shard(shard)
        for hints in self._hints:
            hints.drop_shard(shard)

    def close(self) -> None:
        super().close()
        for hints in self._hints:
            hints.close()
