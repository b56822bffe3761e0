"""Drops duplicates: the first row of each key is emitted, and the key remembered, on the read-modify-write store.

Invariants
- One record for each key that is remembered, with nothing but the key and, where it does not follow from the key, its
  expiry: the watermark at which it is forgotten. A duplicate changes nothing, on disk neither: a delta is the new keys.
- Panes are by expiry, rounded up to the pane's end, so that the horizon, just after the watermark, drops all that is
  forgotten, in memory or spilled, and unread. What is forgotten already but shares a pane with what is not is known
  by its own expiry. So forgetting costs what is forgotten, and needs no tombstones.
- Where the event time is one of the keys, a key's pane follows from it: one look finds it. Where keys are forgotten a
  delay after their row, nobody knows a key's pane, and all panes are looked into: about ten; where the watermark lags
  far behind, panes get wider, so that they stay few.
- In processing time a record has the time of the epoch that has emitted its row, and panes are by that: the horizon is
  just after the last such time that is forgotten by the epoch.
- Of several rows of a key in one epoch the same is chosen whatever the tasks, see ``keyed``. What is emitted depends on
  rows and watermarks only.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.ids import MIN_MICROS
from tailrace.operators.dedup.spec import DeduplicateSpec, Memory
from tailrace.operators.ingest.frame import Frame, shard_order
from tailrace.operators.output import output_pieces, output_schema
from tailrace.operators.resources import Resources
from tailrace.operators.rows.keyed import PIECE_ROWS, earliest, keyed, pieces
from tailrace.operators.rows.places import place_of, time_place
from tailrace.operators.store_operator import HintedRecords, OverStore, RecordSnapshots, record_store
from tailrace.state.layout import PANE, VALID, record_layout
from tailrace.state.read_modify_write import probes
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows import columns
from tailrace.state.rows.arrange import take
from tailrace.state.rows.rows import Rows
from tailrace.state.sections.sections import ValidBits, decoded
from tailrace.types import TIMESTAMP

_NEVER = 2**63 - 2
"""The pane of keys that are never forgotten: after every other."""
_PANES_MAX = 16


@dataclass(frozen=True)
class _Arrived:
    """Rows of some keys, all of each: which of them is the first of its key, and the record that would remember it.

    Both by shard: those of shard ``s`` are ``bounds[s]`` to ``bounds[s + 1]``.
    """

    rows: Rows
    firsts: np.ndarray
    records: Rows
    bounds: np.ndarray


class Deduplicate(HintedRecords, RecordSnapshots, OverStore[ReadModifyWriteStore]):
    def __init__(
        self,
        spec: DeduplicateSpec,
        shards: Iterable[int],
        resources: Resources,
    ) -> None:
        self.spec = spec
        self._layout = spec.layout()
        self._kept = spec.kept_layout()
        self._key_words = record_layout(spec.keys, [], ansi=False).words
        self._time = time_place(spec, self._layout)
        self._schema = output_schema(spec)
        self._now, self._forget_before = 0, int(MIN_MICROS)
        self._fresh: list[Rows] = []  # the newest epoch's rows that are no duplicates, until they are emitted
        super().__init__(record_store(self._kept, shards, resources))

    def updated(self, epoch: int) -> int:
        self._check_newest(epoch)
        return self._store.changes.count()

    def wants_hints(self) -> bool:
        """Elsewhere the pane of a key's record follows from more than its row."""
        return self.spec.memory is Memory.FOREVER and super().wants_hints()

    # One epoch -------------------------------------------------------------------------------------------------------

    def set_times(self, now: int, forget_before: int) -> None:
        self._now, self._forget_before = now, forget_before

    def apply(self, epoch: int, frames: Sequence[Frame]) -> None:
        """Find the rows of the committed attempts that are no duplicates, and remember their keys."""
        self._fresh = []
        self._store.open(epoch)
        found = [self._remembered(arrived) for arrived in self._gathered(frames)]
        # A key that is forgotten already may still have a record in the very pane of its new one.
        self._store.merge_more(found, fresh=self.spec.memory not in (Memory.WITHIN, Memory.SINCE))

    def _gathered(self, frames: Sequence[Frame]) -> Iterator[_Arrived]:
        """Rows of some keys at a time. With async-io the next ones' records are read while these are worked on."""
        waiting: _Arrived | None = None
        for rows in pieces(frames, self._layout, PIECE_ROWS):
            arrived = self._arrived(rows)
            if not self._store.async_io or not self.spec.memory.has_one_pane:
                yield arrived
                continue
            self._store.begin_reads([(arrived.records, arrived.bounds)])
            if waiting is not None:
                yield waiting
            waiting = arrived
        if waiting is not None:
            yield waiting

    def _arrived(self, rows: Rows) -> _Arrived:
        chosen = earliest(rows, keyed(rows, self._layout), self._time)
        records = self._records(rows, chosen)
        order, bounds = shard_order(records.words, self.spec.shards)
        return _Arrived(rows, chosen[order], Rows(records.words[order], records.heap), bounds)

    def _remembered(self, arrived: _Arrived) -> tuple[Rows, np.ndarray]:
        """Keys that are new, as records sorted by shard."""
        records, bounds = arrived.records, arrived.bounds
        fresh = np.flatnonzero(~self._known(records, bounds))
        self._fresh.append(take(arrived.rows, arrived.firsts[fresh], self._layout))
        if self.spec.memory is Memory.WITHIN:
            # Without a time a key is not remembered beyond its epoch, as in Spark.
            fresh = fresh[records.words[fresh, VALID] >> self._kept.accumulators[0].bit & 1 == 1]
        return Rows(records.words[fresh], records.heap), np.searchsorted(fresh, bounds)

    def _known(self, records: Rows, bounds: np.ndarray) -> np.ndarray:
        match self.spec.memory:
            case Memory.SINCE:
                after = self._forget_before
            case Memory.WITHIN:
                # The horizon is the watermark of the epoch before, and one.
                after = self.horizon - 1 if self.horizon > MIN_MICROS else MIN_MICROS
            case _:
                return probes.known(self._store, records, bounds)
        return probes.outlasting(self._store, records, bounds, self._kept.accumulators[0].word, after)

    def _records(self, rows: Rows, chosen: np.ndarray) -> Rows:
        words = np.zeros((len(chosen), self._kept.words), np.int64)
        words[:, : self._key_words] = rows.words[chosen, : self._key_words]
        words[:, VALID] &= self._kept.key_mask
        if self.spec.memory is Memory.SINCE:
            place = self._kept.accumulators[0]
            words[:, place.word] = self._now
            words[:, VALID] |= 1 << place.bit
            words[:, PANE] = pane_ends(words[:, place.word], self._width(words[:, place.word]))
        elif self.spec.memory is not Memory.FOREVER:
            assert self._time is not None
            times = rows.words[chosen, self._time.word]
            timed = (rows.words[chosen, VALID] >> self._time.bit & 1).astype(bool)
            if self.spec.memory is Memory.WITHIN:
                place, expiry = self._kept.accumulators[0], times + self.spec.delay
                words[:, place.word] = np.where(timed, expiry, 0)
                words[:, VALID] |= timed.astype(np.int64) << place.bit
                words[:, PANE] = pane_ends(expiry, self._width(expiry[timed]))
            else:
                words[:, PANE] = np.where(timed, pane_ends(times, self.spec.pane), _NEVER)
        return Rows(words, rows.heap)

    def _width(self, times: np.ndarray) -> int:
        """Of the panes of new keys: few are to lie between the horizon and the last of these times."""
        width = int(self.spec.pane)
        if len(times):
            first = int(times.min()) if self.horizon == MIN_MICROS else self.horizon
            while (int(times.max()) - first) // width > _PANES_MAX:
                width *= 2
        return width

    def advance(self, epoch: int, late_before: int, watermark: int) -> list[pa.RecordBatch]:
        """Emit the rows that are no duplicates; forget what ``watermark`` has reached."""
        self._check_newest(epoch)
        emitted = [batch for rows in self._fresh for batch in self._batches(rows)]
        self._fresh = []
        mark = self._forget_before if self.spec.memory is Memory.SINCE else self.spec.mark(watermark)
        if self.spec.memory is not Memory.FOREVER and mark > MIN_MICROS:
            self._store.expire(mark + 1)
        return emitted

    def undo(self, epoch: int) -> None:
        self._fresh = []
        super().undo(epoch)

    def _batches(self, rows: Rows) -> list[pa.RecordBatch]:
        return [self._batch(piece) for piece in output_pieces(rows)]

    def _batch(self, rows: Rows) -> pa.RecordBatch:
        valid = ValidBits(rows)
        arrays = [decoded(rows, valid, place_of(self.spec, name, self._layout)) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    # Shards ----------------------------------------------------------------------------------------------------------

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        """The width of panes follows from the watermark's delay, which may be another one than in an earlier run."""
        if self.spec.memory is Memory.KEY_TIME:
            batches = [self._in_panes(batch) for batch in batches]
        super().restore(shard, batches, horizon)

    def _in_panes(self, section: pa.RecordBatch) -> pa.RecordBatch:
        names = [key.name for key in self.spec.keys]
        assert self.spec.time_column is not None
        times = section.column(f"k{names.index(self.spec.time_column.name)}")
        timed = columns.valid_mask(times)
        panes = pane_ends(columns.fixed_words(times, TIMESTAMP, timed), self.spec.pane)
        panes = panes if timed is None else np.where(timed, panes, _NEVER)
        return section.set_column(1, "__pane", pa.array(panes))


def pane_ends(times: np.ndarray, width: int) -> np.ndarray:
    """The end of the pane that a time lies in; an end itself is its pane's last moment."""
    ends: np.ndarray = -(-times // width) * width
    return ends
