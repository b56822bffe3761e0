"""The n best rows of each group, of groups that are forgotten when no row has come for them for a while.

Invariants
- A record's last value is when its group was last updated: the largest event time of all rows that came for it, among
  the best or not; or the time of the epoch that brought the last one. ``expiry`` says which records are forgotten, and
  when. A group that is starts anew, with the rows that come then.
- Every record that rows came for is written, since its time has changed; only those whose best rows changed are
  emitted. They wait for that as they were before anything was forgotten.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from tailrace.operators.ingest.frame import Frame
from tailrace.operators.resources import Resources
from tailrace.operators.rows.places import time_word
from tailrace.operators.timers.expiry import DEADLINES_SHARE, Expiring, Expiry
from tailrace.operators.top_n.best_rows import latest
from tailrace.operators.top_n.operator import Ranked, TopN
from tailrace.operators.top_n.sections import to_records, to_rows, with_update
from tailrace.operators.top_n.spec import TopNSpec
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.state.read_modify_write import probes
from tailrace.state.rows.rows import Rows


class TtlTopN(Expiring, TopN):
    _expiry: Expiry

    def __init__(
        self,
        spec: TopNSpec,
        shards: Iterable[int],
        resources: Resources,
    ) -> None:
        assert spec.ttl is not None and spec.window is None
        deadlines, records = resources.share(DEADLINES_SHARE)
        updated = spec.kept().layout().accumulators[1]
        super().__init__(spec, shards, records, noted_word=updated.word)
        self._expire_by(Expiry(self._store, updated, spec.ttl.clock, spec.shards, deadlines))
        self._entered: list[Rows] = []  # records whose best rows the newest epoch changed, until they are emitted

    # One epoch -------------------------------------------------------------------------------------------------------

    def apply(self, epoch: int, frames: Sequence[Frame]) -> None:
        self._store.open(epoch)
        self._forget_first(epoch)
        self._entered, anew, others = [], [], []
        for rows in self._gathered(frames):
            ranked = self._ranked(rows)
            packed = self._records(ranked)
            records = with_update(packed.words, self._updates(rows, ranked), self._layout)
            self._entered.append(Rows(records[ranked.entered], packed.heap))
            look_new = np.zeros(len(ranked.came), bool)
            look_new[ranked.owners[probes.take(self._store, ranked.old, np.ones(len(ranked.owners), bool))]] = True
            anew.append(Rows(records[look_new], packed.heap))
            others.append(Rows(records[~look_new], packed.heap))
        self._put(anew, hold=False)  # by itself: to the store they are new, and they have their deadlines
        self._put(others)
        self._expiry.note_made()

    def _updates(self, rows: Rows, ranked: Ranked) -> np.ndarray:
        """When each group was updated last, these rows included."""
        if self._expiry.processing:
            return np.full(len(ranked.came), self._expiry.now)
        times = latest(rows.words[:, time_word(self._top, self._row_layout)], ranked.came)
        before = np.concatenate([part.words[:, self._expiry.updated.word] for part in ranked.old.parts])
        times[ranked.owners] = np.maximum(times[ranked.owners], before)
        return times

    def advance(self, epoch: int, late_before: int, watermark: int) -> Sequence[pa.RecordBatch]:
        emitted = super().advance(epoch, late_before, watermark)
        self._entered = []
        self._forget_last(epoch)
        return emitted

    def _changed(self, window: TimeWindowSpec | None, late_before: int) -> Iterator[pa.RecordBatch]:
        return (batch for records in self._entered for batch in self._finish(records))

    def undo(self, epoch: int) -> None:
        self._entered = []
        super().undo(epoch)

    # Sections --------------------------------------------------------------------------------------------------------

    def delta(self, epoch: int) -> dict[int, pa.RecordBatch]:
        """By shard, all rows of the groups that rows came for, and tombstones of those that were forgotten."""
        self._check_newest(epoch)
        return {shard: to_rows(records, self._top) for shard, records in self._store.delta().items()}

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        super().restore(shard, [to_records(batch, self._top) for batch in batches], horizon)
