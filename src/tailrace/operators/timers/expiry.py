"""Which records of a read-modify-write store were not updated for a while: for operators that forget them.

Invariants
- One word of a record, ``updated``, is when it was last updated: by event time what its rows say, in processing time
  when the epoch began that touched it last. A record with one at or before ``forget_before``, which comes with the
  epoch, is to be forgotten: in processing time before the epoch's rows are looked at, in event time after they were.
- Each record has *one* entry among the deadlines, at or before the time of its last update. When it comes up the record
  is looked at: touched since, it gets a later one, else it goes. So forgetting costs what is forgotten and what was
  touched, never what is kept, in memory or on disk.
- The store notes ``updated`` of records that a merge makes new (``noted_word``), and removes single records.
- What is forgotten leaves a tombstone in the delta. Deadlines are no state: a restore makes them from the records.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from tailrace.ids import MIN_MICROS
from tailrace.operators.resources import Resources
from tailrace.operators.store_operator import OverStore
from tailrace.operators.timers.record_timers import Waiting
from tailrace.operators.timers.ttl import Clock
from tailrace.state.hash_table.table import Table
from tailrace.state.layout import HASH, AccumulatorWords
from tailrace.state.read_modify_write.store import ReadModifyWriteStore

DEADLINES_SHARE = 8
"""Deadlines may take one part in so many of an operator's memory."""


class Expiry(Waiting):
    def __init__(
        self,
        store: ReadModifyWriteStore,
        updated: AccumulatorWords,
        clock: Clock,
        shard_count: int,
        resources: Resources,
    ) -> None:
        super().__init__(store, shard_count, resources)
        self.updated = updated
        self.processing = clock is Clock.PROCESSING
        self.now, self.forget_before = 0, int(MIN_MICROS)

    def set_times(self, now: int, forget_before: int) -> None:
        self.now, self.forget_before = now, forget_before

    # One epoch -------------------------------------------------------------------------------------------------------

    def note_made(self) -> None:
        """Wait for the records that the last merge has made."""
        for made in self._store.made.values():
            times = np.full(len(made), self.now) if self.processing else made[:, 0]
            self.deadlines.put(times, made[:, 1])

    def expired(self, epoch: int) -> Iterator[tuple[int, np.ndarray]]:
        """(shard, row numbers) of the records that are to be forgotten, in memory now: the caller removes them."""
        until, word = self.forget_before, self.updated.word
        if until == MIN_MICROS:
            return
        for shard, hashes in self._come_up(epoch, until):
            rows, others = self._store.with_hashes(shard, hashes, lambda words: words[:, word] <= until)
            self.deadlines.put(others[:, word], others[:, HASH])
            if len(rows):
                yield shard, rows

    def remove_expired(self, epoch: int) -> None:
        for shard, rows in self.expired(epoch):
            self._store.remove(shard, rows)

    def restore(self, shard: int, table: Table) -> None:
        """The entries of a shard that was loaded."""
        rows = table.all_rows()
        self.deadlines.restore(shard, table.word(rows, self.updated.word), table.word(rows, HASH))


class Expiring(OverStore[ReadModifyWriteStore]):
    """An operator over one store whose records expire; None: they do not."""

    _expiry: Expiry | None = None

    def _expire_by(self, expiry: Expiry) -> None:
        self._expiry = expiry
        self._companions.append(expiry)

    def set_times(self, now: int, forget_before: int) -> None:
        if self._expiry is not None:
            self._expiry.set_times(now, forget_before)

    def _forget_first(self, epoch: int) -> None:
        """Before the epoch's rows are looked at."""
        if self._expiry is not None and self._expiry.processing:
            self._expiry.remove_expired(epoch)

    def _forget_last(self, epoch: int) -> None:
        """After they were, and what they changed was emitted."""
        if self._expiry is not None and not self._expiry.processing:
            self._expiry.remove_expired(epoch)

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        if shard in self._store.shards:
            self.drop_shard(shard)
        look = None if self._expiry is None else partial(self._expiry.restore, shard)
        self._store.restore(shard, batches, horizon, look)
