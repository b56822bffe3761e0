"""Rolling aggregates that forget keys which were not updated for a while, on the read-modify-write store.

Invariants
- The first accumulator of a record is when it was last updated: the largest event time of its rows, or the time of the
  epoch that touched it. ``expiry`` says which records are forgotten, and when. A key that is starts anew.
- In event time an epoch's rows are merged and emitted before anything is forgotten by it.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.aggregate.window_aggregate import WindowAggregate
from tailrace.operators.ingest.frame import Frame
from tailrace.operators.resources import Resources
from tailrace.operators.timers.expiry import DEADLINES_SHARE, Expiring, Expiry


class TtlAggregate(Expiring, WindowAggregate):
    _expiry: Expiry

    def __init__(self, spec: AggregateSpec, shards: Iterable[int], resources: Resources) -> None:
        assert spec.ttl is not None and spec.window is None
        deadlines, records = resources.share(DEADLINES_SHARE)
        updated = spec.layout().accumulators[0]
        super().__init__(spec, shards, records, noted_word=updated.word)
        self._expire_by(Expiry(self._store, updated, spec.ttl.clock, spec.shards, deadlines))

    # One epoch -------------------------------------------------------------------------------------------------------

    def apply(self, epoch: int, frames: Sequence[Frame]) -> None:
        expiry = self._expiry
        self._store.open(epoch)
        self._forget_first(epoch)
        self._merge(epoch, frames)
        expiry.note_made()
        if expiry.processing:
            for _, table, rows in self._store.changes.in_tables():
                table.set_word(rows, expiry.updated.word, expiry.updated.bit, expiry.now)

    def advance(self, epoch: int, late_before: int, watermark: int) -> Sequence[pa.RecordBatch]:
        emitted = super().advance(epoch, late_before, watermark)
        self._forget_last(epoch)
        return emitted
