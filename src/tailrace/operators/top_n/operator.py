"""The n best rows of each key, over windows (tumbling, sliding) or over all time, on the read-modify-write store.

Invariants
- State is never more than n rows a key and pane, packed in one record (see ``state.rows.packed_rows``), the best first.
  A row that is not among the best of its pane is not among those of any window that holds the pane.
- An epoch gathers the rows of the keys that it touches, puts its own beside them, and cuts to n. Only records whose
  rows changed are written: these are what update mode emits and what a delta holds.
- Windows close, and panes go, as in ``window_aggregate``: this is one, of records that are lists.
- A row enters only where it is better than one that is there, and rows are ordered by all that is kept of them: what is
  emitted depends on the rows, never on the order in which they came.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tailrace.operators.aggregate.finish import window_struct
from tailrace.operators.aggregate.window_aggregate import WindowAggregate
from tailrace.operators.ingest.frame import Frame, by_shard, shard_order
from tailrace.operators.output import OUTPUT_ROWS_MAX, output_schema
from tailrace.operators.resources import Resources
from tailrace.operators.rows.keyed import PIECE_ROWS, Keyed, keyed, pieces
from tailrace.operators.top_n.best_rows import best_of, order_of
from tailrace.operators.top_n.sections import to_records
from tailrace.operators.top_n.spec import TopNSpec
from tailrace.state.layout import PANE
from tailrace.state.read_modify_write import probes
from tailrace.state.read_modify_write.probes import Current
from tailrace.state.rows.packed_rows import pack, row_starts, unpack
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.state.sections.sections import ValidBits, decoded, to_section


@dataclass(frozen=True)
class Ranked:
    """Keys with their best rows: those of key ``g`` are ``rows[best[starts[g]:starts[g + 1]]]``, the best first.

    ``entered``: of each key whether rows of the epoch are among them. ``came``: the epoch's rows by key, ``old`` and
    ``owners``: the records that were there, and the key of each.
    """

    rows: Rows
    best: np.ndarray
    starts: np.ndarray
    entered: np.ndarray
    came: Keyed
    old: Current
    owners: np.ndarray

    def where(self, chosen: np.ndarray) -> Ranked:
        """Only some of the keys, with their best rows."""
        best = self.best[np.repeat(chosen, np.diff(self.starts))]
        starts = np.concatenate([[0], np.cumsum(np.diff(self.starts)[chosen])]).astype(np.int64)
        return replace(self, best=best, starts=starts, entered=self.entered[chosen])


class TopN(WindowAggregate):
    def __init__(
        self,
        spec: TopNSpec,
        shards: Iterable[int],
        resources: Resources,
        noted_word: int | None = None,
    ) -> None:
        super().__init__(spec.kept(), shards, resources, noted_word=noted_word)
        self._top = spec
        self._row_layout = spec.layout()
        self._order = order_of(spec.rows, spec.order, spec.time_column, self._row_layout)
        self._schema = output_schema(spec)

    # One epoch -------------------------------------------------------------------------------------------------------

    def apply(self, epoch: int, frames: Sequence[Frame]) -> None:
        """Put the rows of the committed attempts where they belong among the best."""
        self._store.open(epoch)
        changed = []
        for ranked in map(self._ranked, self._gathered(frames)):
            probes.take(self._store, ranked.old, ranked.entered[ranked.owners])
            changed.append(self._records(ranked.where(ranked.entered)))
        self._put(changed)

    def _gathered(self, frames: Sequence[Frame]) -> Iterator[Rows]:
        """Rows of some keys at a time, all of each."""
        # A key may bring n rows from the state for each of its own.
        step = max(1, PIECE_ROWS // self._top.n)
        for turn in self._store.read_turns([frame.parts() for frame in frames]):
            yield from pieces([Frame(rows.words, rows.heap, bounds) for rows, bounds in turn], self._row_layout, step)

    def _put(self, records: Sequence[Rows], *, hold: bool = True) -> None:
        """Records in place of those in memory, or of those that were taken."""
        frames = [by_shard(part, self._top.shards).parts() for part in records]
        self._store.merge_more(frames, replace=True, fresh=True, hold=hold)

    def _ranked(self, rows: Rows) -> Ranked:
        """The keys of these rows, and the best rows that they have now."""
        groups = keyed(rows, self._row_layout)
        old, owners = self._current(rows, groups)
        unpacked = [unpack(part, self._row_layout) for part in old.parts]
        kept = sum(len(part) for part, _ in unpacked)
        # Putting rows together changes their words, and those of a frame are not ours.
        parts = [*(part for part, _ in unpacked if len(part)), Rows(rows.words.copy(), rows.heap) if kept else rows]
        both = concat_rows(parts, self._row_layout)
        sizes = np.concatenate([np.diff(starts) for _, starts in unpacked])
        numbers = np.concatenate([np.repeat(owners, sizes), groups.numbers])
        best, starts = best_of(both, Keyed(numbers, groups.firsts), self._top.n, self._order)
        entered = np.logical_or.reduceat(best >= kept, starts[:-1])
        return Ranked(both, best, starts, entered, groups, old, owners)

    def _records(self, ranked: Ranked) -> Rows:
        return pack(ranked.rows, ranked.best, ranked.starts, self._row_layout)

    def _current(self, rows: Rows, groups: Keyed) -> tuple[Current, np.ndarray]:
        """The records of these keys, and the key of each."""
        wanted = np.ascontiguousarray(rows.words[groups.firsts, : self._layout.words])
        order, bounds = shard_order(wanted, self._top.shards)
        found = probes.current(self._store, Rows(wanted[order], rows.heap), bounds, keep=False)
        return found, order[found.numbers]

    # Output ----------------------------------------------------------------------------------------------------------

    def _finish(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Records whose pane is their window's start."""
        low = 0
        starts = row_starts(rows, self._row_layout)
        while low < len(rows):
            high = int(np.searchsorted(starts, starts[low] + OUTPUT_ROWS_MAX, side="right")) - 1
            high = max(high, low + 1)
            yield from self._emitted(*unpack(Rows(rows.words[low:high], rows.heap), self._row_layout))
            low = high

    def _merged(self, pieces: Iterable[Rows]) -> Iterator[pa.RecordBatch]:
        """Records of several panes of each window, whose pane is now the window's start."""
        for records in pieces:
            rows, _ = unpack(records, self._row_layout)
            if not len(rows):
                continue
            best, starts = best_of(rows, keyed(rows, self._row_layout), self._top.n, self._order)
            yield from self._emitted(Rows(rows.words[best], rows.heap), starts)

    def _emitted(self, rows: Rows, starts: np.ndarray) -> Iterator[pa.RecordBatch]:
        """Rows of groups, the best first."""
        ranks = np.arange(1, len(rows) + 1) - np.repeat(starts[:-1], np.diff(starts))
        # Cut before Arrow is made of it: the strings of one batch must stay below 2 GiB.
        for at in range(0, len(rows), OUTPUT_ROWS_MAX):
            to = at + OUTPUT_ROWS_MAX
            yield self._batch(Rows(rows.words[at:to], rows.heap), ranks[at:to])

    def _batch(self, rows: Rows, ranks: np.ndarray) -> pa.RecordBatch:
        spec, layout = self._top, self._row_layout
        names = [row.name for row in spec.rows]
        valid = ValidBits(rows)
        arrays = [decoded(rows, valid, key) for key in layout.keys]
        arrays += [decoded(rows, valid, layout.accumulators[names.index(name)]) for name in spec.shown]
        if spec.window is not None:
            windows = window_struct(np.ascontiguousarray(rows.words[:, PANE]), self.spec)
            arrays.insert(spec.window_position, windows)
        return pa.RecordBatch.from_arrays([*arrays, pa.array(ranks.astype(np.int32))], schema=self._schema)

    # Sections --------------------------------------------------------------------------------------------------------

    def delta(self, epoch: int) -> dict[int, pa.RecordBatch]:
        """By shard, all rows of the keys whose rows changed: they stand in place of those in earlier sections."""
        self._check_newest(epoch)
        left = self._store.changes.live_copies()
        rows, starts = unpack(left.rows, self._row_layout)
        section, edges = to_section(rows, self._row_layout), starts[left.counts]
        return {
            shard: section.slice(int(low), int(high - low))
            for shard, low, high in zip(left.shards, edges[:-1], edges[1:], strict=True)
        }

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        super().restore(shard, [to_records(batch, self._top) for batch in batches], horizon)
