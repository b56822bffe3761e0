"""Rolling aggregates that forget keys which were not updated for a while, on the read-modify-write store.

Invariants
- The first accumulator of a record is when it was last updated: the largest event time of its rows, or the time of the
  epoch that touched it. A record with one at or before ``forget_before``, which comes with the epoch, is forgotten: in
  processing time before the epoch's rows are merged, in event time after they were, and emitted. Its key starts anew.
- Each record has *one* entry among the deadlines, at or before the time of its last update. When it comes up the record
  is looked at: touched since, it gets a later one, else it goes. So forgetting costs what is forgotten and what was
  touched, never what is kept, in memory or on disk.
- What is forgotten leaves a tombstone in the delta. Deadlines are no state: a restore makes them from the records.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from tailrace.ids import MIN_MICROS
from tailrace.operators.deadlines import Deadlines, split_by_shard
from tailrace.operators.frame import Frame
from tailrace.operators.specs.aggregate import AggregateSpec
from tailrace.operators.specs.ttl import Clock
from tailrace.operators.window_aggregate import WindowAggregate
from tailrace.state.layout import HASH
from tailrace.state.table import Table
from tailrace.state.tuning import USUAL, Tuning

_DEADLINES_SHARE = 8
"""Deadlines may take one part in so many of the memory."""
_FOREVER = 2**63 - 1


class TtlAggregate(WindowAggregate):
    def __init__(
        self,
        spec: AggregateSpec,
        shards: Iterable[int],
        threads: int = 2,
        *,
        memory_bytes: int,
        folder: str,
        tuning: Tuning = USUAL,
    ) -> None:
        assert spec.ttl is not None and spec.window is None
        share = memory_bytes // _DEADLINES_SHARE
        self._updated = spec.layout().accumulators[0]
        super().__init__(
            spec,
            shards,
            threads,
            memory_bytes=memory_bytes - share,
            folder=folder,
            tuning=tuning,
            noted_word=self._updated.word,
        )
        self._processing = spec.ttl.clock is Clock.PROCESSING
        self._deadlines = Deadlines(spec.shards, share, folder)
        self._now, self._forget_before = 0, int(MIN_MICROS)
        self.looked = 0  # entries that came up so far

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._deadlines.nbytes

    @property
    def disk_bytes(self) -> int:
        return super().disk_bytes + self._deadlines.disk_bytes

    # One epoch -------------------------------------------------------------------------------------------------------

    def set_times(self, now: int, forget_before: int) -> None:
        self._now, self._forget_before = now, forget_before

    def apply(self, epoch: int, frames: Sequence[Frame]) -> None:
        self._store.open(epoch)
        if self._processing:
            self._forget(epoch)
        self._merge(epoch, frames)
        for made in self._store.made.values():
            times = np.full(len(made), self._now) if self._processing else made[:, 0]
            self._deadlines.put(times, made[:, 1])
        if self._processing:
            for _, table, rows in self._store.changed():
                table.set_word(rows, self._updated.word, self._updated.bit, self._now)

    def advance(self, epoch: int, late_before: int, watermark: int) -> list[pa.RecordBatch]:
        emitted = super().advance(epoch, late_before, watermark)
        if not self._processing:
            self._forget(epoch)
        return emitted

    def _forget(self, epoch: int) -> None:
        until = self._forget_before
        if until == MIN_MICROS:
            return
        word = self._updated.word
        for shard, hashes in split_by_shard(self._deadlines.take(epoch, until), self.spec.shards):
            self.looked += len(hashes)
            rows, others = self._store.with_hashes(shard, hashes, lambda words: words[:, word] <= until)
            self._store.remove(shard, rows)
            self._deadlines.put(others[:, word], others[:, HASH])

    def undo(self, epoch: int) -> None:
        super().undo(epoch)
        self._deadlines.undo(epoch)

    def forget(self, epoch: int) -> None:
        super().forget(epoch)
        self._deadlines.forget(epoch)

    # Shards ----------------------------------------------------------------------------------------------------------

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        if shard in self._store.shards:
            self.drop_shard(shard)

        def look(table: Table) -> None:
            rows = table.rows_of(table.panes(_FOREVER))
            self._deadlines.restore(shard, table.word(rows, self._updated.word), table.word(rows, HASH))

        self._store.restore(shard, batches, horizon, look)

    def drop_shard(self, shard: int) -> None:
        super().drop_shard(shard)
        self._deadlines.drop_shard(shard)

    def close(self) -> None:
        super().close()
        self._deadlines.close()
