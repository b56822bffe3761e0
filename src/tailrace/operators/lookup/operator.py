"""Joins rows with a lookup table: each row of an epoch with the table's row for its key, or with nulls, or left out.

Invariants
- Nothing is kept between epochs but copies of the table's rows, which may go at any time: there is no delta, and a
  server that starts anew has nothing to load. An undone epoch has changed nothing.
- What is emitted, and in which order, depends on the epoch's rows and on the table alone.
- The table is asked once for a key of an epoch, whatever the number of its rows: of very many, once in each million.

Threads: one call at a time; hints from any, beside a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from tailrace.ids import MIN_MICROS
from tailrace.operators.base import HintedKeys
from tailrace.operators.ingest.frame import Frame
from tailrace.operators.lookup.backend import Asker
from tailrace.operators.lookup.spec import LookupSpec
from tailrace.operators.lookup.table_cache import TableCopies
from tailrace.operators.output import OUTPUT_ROWS_MAX, output_schema
from tailrace.operators.rows.keyed import keyed
from tailrace.state.layout import VALID, AccumulatorWords, KeyWords
from tailrace.state.metrics import Metrics
from tailrace.state.rows.rows import Rows, plain
from tailrace.state.sections.sections import ValidBits, decoded
from tailrace.state.tuning import DEFAULT_TUNING, Tuning

_QUIET_EPOCHS = 2
_ROWS_TOGETHER = 1 << 20
"""Frames with about so many rows are worked on at a time: bounds the keys, and what is said of them, in memory."""


class LookupJoin:
    def __init__(
        self,
        spec: LookupSpec,
        shards: Iterable[int],
        asker: Asker,
        *,
        memory_bytes: int,
        tuning: Tuning = DEFAULT_TUNING,
    ) -> None:
        self.spec = spec
        self._layout = spec.layout()
        self._kept = spec.cached_layout()
        self._schema = output_schema(spec)
        self._shards = set(shards)
        self._copies = TableCopies(spec, asker, memory_bytes, tuning.spilled.policy)
        self._prefetch = tuning.spilled.prefetch
        self._places: list[KeyWords | AccumulatorWords] = [*self._layout.keys, *self._layout.accumulators]
        self._time = self._time_place()
        self._newest: int | None = None
        self._keys = 0  # of the newest epoch
        self._fetched = 0  # keys that the table was asked for, when the last epoch was applied
        self._quiet = 0  # epochs since then in which it was asked for none
        self._made: list[pa.RecordBatch] = []  # the epoch's output, until it is given

    # One epoch -------------------------------------------------------------------------------------------------------

    def apply(self, epoch: int, frames: Sequence[Frame]) -> None:
        self._made, self._keys = [], 0
        self._newest = epoch
        before = self._fetched
        for some in _together([plain(Rows(frame.rows, frame.heap)) for frame in frames if frame.n]):
            self._made += self._joined(some, epoch)
        self._fetched = self._copies.fetched
        self._quiet = 0 if self._fetched > before else self._quiet + 1

    def advance(self, epoch: int, late_before: int, watermark: int) -> list[pa.RecordBatch]:
        self._check_newest(epoch)
        made, self._made = self._made, []
        self._copies.drop_hints(watermark if self._time is not None else epoch + 1)
        return made

    def _joined(self, parts: list[Rows], epoch: int) -> list[pa.RecordBatch]:
        """Frames with the table's rows, each by itself; a key that several have is asked for once."""
        groups = [keyed(rows, self._layout) for rows in parts]
        known = [self._known(rows.words[own.firsts]) for rows, own in zip(parts, groups)]
        keys, numbers = self._copies.distinct(
            [Rows(rows.words[own.firsts[some]], rows.heap) for rows, own, some in zip(parts, groups, known)]
        )
        self._keys += len(keys)
        time = max(int(self._times(rows.words, epoch).max(initial=MIN_MICROS)) for rows in parts)
        columns: list[pa.Table | None] = [None] * len(parts)
        if self._prefetch == "async-io":
            # What needs nothing from the table is made while it is asked for the rest.
            self._copies.begin(keys, time)
            columns = [self._columns(rows) for rows in parts]
        said = self._copies.found(keys, time)
        has = said.words[:, self._kept.accumulators[0].word] != 0
        valid = ValidBits(said)
        values = [decoded(said, valid, place) for place in self._kept.accumulators[1:]]
        out: list[pa.RecordBatch] = []
        for rows, own, some, mine, made in zip(parts, groups, known, numbers, columns):
            place = np.full(len(own), -1, np.int64)
            place[some] = np.where(has[mine], mine, -1)
            out += self._batches(rows, made, place[own.numbers], values)
        return out

    def _batches(
        self, rows: Rows, columns: pa.Table | None, chosen: np.ndarray, values: list[pa.Array]
    ) -> list[pa.RecordBatch]:
        """``columns``: the rows', where they are made already. ``chosen``: of each, the table's row, or -1."""
        there = np.arange(len(rows)) if self.spec.outer else np.flatnonzero(chosen >= 0)
        if len(there) < len(rows):
            chosen = chosen[there]
            columns = None if columns is None else columns.take(pa.array(there))
            rows = rows if columns is not None else Rows(rows.words[there], rows.heap)
        out, at = [], 0
        for part in (self._columns(rows) if columns is None else columns).to_batches(OUTPUT_ROWS_MAX):
            mine = chosen[at : at + len(part)]
            places = pa.array(mine, mask=mine < 0)
            arrays = [*part.columns, *(value.take(places) for value in values)]
            out.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
            at += len(part)
        return out

    def _columns(self, rows: Rows) -> pa.Table:
        """The stream's columns. Made in parts: the strings of one Arrow array must stay below 2 GiB."""
        schema = pa.schema(list(self._schema)[: len(self._places)])
        parts = []
        for at in range(0, len(rows), OUTPUT_ROWS_MAX):
            own = Rows(rows.words[at : at + OUTPUT_ROWS_MAX], rows.heap)
            bits = ValidBits(own)
            parts.append(pa.RecordBatch.from_arrays([decoded(own, bits, one) for one in self._places], schema=schema))
        return pa.Table.from_batches(parts, schema)

    def _time_place(self) -> KeyWords | AccumulatorWords | None:
        if self.spec.time_column is None:
            return None
        names = [field.name for field in (*self.spec.keys, *self.spec.rows)]
        return self._places[names.index(self.spec.time_column.name)]

    def _known(self, words: np.ndarray) -> np.ndarray:
        """Which rows have no null in their key."""
        known: np.ndarray = (words[:, VALID] & self._layout.key_mask) == self._layout.key_mask
        return known

    def _times(self, words: np.ndarray, epoch: int) -> np.ndarray:
        """The event times of rows; epochs stand for them where there are none."""
        if self._time is None:
            return np.full(len(words), epoch, np.int64)
        timed = (words[:, VALID] >> self._time.bit & 1).astype(bool)
        return np.where(timed, words[:, self._time.word], MIN_MICROS)

    # Hints -----------------------------------------------------------------------------------------------------------

    def wants_hints(self) -> bool:
        """While the table is asked for anything: once the cache has all that comes, hints bring nothing."""
        return self._prefetch == "on" and self._quiet < _QUIET_EPOCHS

    def hint_frame(self, frame: Frame, epoch: int) -> None:
        if not self.wants_hints() or not frame.n:
            return
        rows = plain(Rows(frame.rows, frame.heap))
        firsts = keyed(rows, self._layout).firsts
        firsts = firsts[self._known(rows.words[firsts])]
        time = int(self._times(rows.words, epoch).max(initial=MIN_MICROS))
        self._copies.hint_rows(Rows(rows.words[firsts], rows.heap), time)

    def hint_keys(self, hinted: HintedKeys, epoch: int) -> None:
        if self.wants_hints() and len(hinted):
            times = hinted.times if self._time is not None else np.full(len(hinted), epoch, np.int64)
            self._copies.hint_keys(hinted.hashes, times, hinted.keys)

    def lacking(self, hashes: np.ndarray, times: np.ndarray) -> np.ndarray:
        # Without event times nobody knows when a key will be used: what is there stays as it is.
        return self._copies.lacking(hashes, times if self._time is not None else None)

    def give_up(self) -> None:
        self._copies.give_up()

    def drain(self) -> None:
        """Wait until all prefetches have finished; for tests and benches."""
        self._copies.drain()

    # State: there is none --------------------------------------------------------------------------------------------

    def delta(self, epoch: int) -> dict[int, pa.RecordBatch]:
        self._check_newest(epoch)
        return {}

    def undo(self, epoch: int) -> None:
        self._made = []
        if self._newest is not None and self._newest >= epoch:
            self._newest = epoch - 1

    def forget(self, epoch: int) -> None:
        """Nothing is kept of an epoch."""

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        self._shards.add(shard)

    def drop_shard(self, shard: int) -> None:
        self._shards.discard(shard)

    def updated(self, epoch: int) -> int:
        """Keys that the table was asked for."""
        self._check_newest(epoch)
        return self._keys

    @property
    def horizon(self) -> int:
        return MIN_MICROS

    @property
    def shards(self) -> frozenset[int]:
        return frozenset(self._shards)

    @property
    def rows(self) -> int:
        return 0

    @property
    def nbytes(self) -> int:
        return self._copies.nbytes

    @property
    def disk_bytes(self) -> int:
        return 0

    def metrics(self) -> Metrics:
        return self._copies.metrics()

    def close(self) -> None:
        self._copies.close()

    def _check_newest(self, epoch: int) -> None:
        if self._newest != epoch:
            raise ValueError(f"epoch {epoch} is not the one last applied ({self._newest})")


def _together(parts: Sequence[Rows]) -> Iterator[list[Rows]]:
    """Frames in their order, some at a time."""
    some: list[Rows] = []
    for part in parts:
        some.append(part)
        if sum(map(len, some)) >= _ROWS_TOGETHER:
            yield some
            some = []
    if some:
        yield some
