"""Numbers the rows of each key, on the read-modify-write store.

Invariants
- One record a key: how many of its rows came so far. An epoch adds to it, whatever the limit, so that numbers go on.
- Inside an epoch the rows of a key are numbered by event time, those without one last, then in the order in which they
  came, partition after partition. What is emitted depends on the rows and their order only: a replay emits the same.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from tailrace.operators.ingest.frame import Frame, shard_order
from tailrace.operators.output import output_pieces, output_schema
from tailrace.operators.resources import Resources
from tailrace.operators.row_number.spec import RowNumberSpec
from tailrace.operators.rows.keyed import PIECE_ROWS, keyed, pieces
from tailrace.operators.rows.places import place_of, time_place
from tailrace.operators.store_operator import HintedRecords, OverStore, RecordSnapshots, record_store
from tailrace.state.layout import VALID
from tailrace.state.read_modify_write import probes
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows.rows import Rows
from tailrace.state.sections.sections import ValidBits, decoded


class RowNumbers(HintedRecords, RecordSnapshots, OverStore[ReadModifyWriteStore]):
    def __init__(self, spec: RowNumberSpec, shards: Iterable[int], resources: Resources) -> None:
        self.spec = spec
        self._layout, self._kept = spec.layout(), spec.kept_layout()
        self._count = self._kept.accumulators[0]
        self._time = time_place(spec, self._layout)
        self._schema = output_schema(spec)
        self._numbered: list[tuple[Rows, np.ndarray]] = []  # the newest epoch's, until they are emitted
        super().__init__(record_store(self._kept, shards, resources))

    def updated(self, epoch: int) -> int:
        self._check_newest(epoch)
        return self._store.changes.count()

    def apply(self, epoch: int, frames: Sequence[Frame]) -> None:
        """Number the rows of the committed attempts, and count them."""
        self._numbered = []
        self._store.open(epoch)
        # Counts are read before any is added: a piece has all rows of its keys.
        self._store.merge_more([self._counted(rows) for rows in pieces(frames, self._layout, PIECE_ROWS)])

    def _counted(self, rows: Rows) -> tuple[Rows, np.ndarray]:
        """The rows of each key as an addition to its record, sorted by shard."""
        groups = keyed(rows, self._layout)
        words = np.zeros((len(groups), self._kept.words), np.int64)
        words[:, : self._count.word] = rows.words[groups.firsts, : self._count.word]
        words[:, VALID] &= self._kept.key_mask
        words[:, VALID] |= 1 << self._count.bit
        words[:, self._count.word] = groups.sizes
        order, bounds = shard_order(words, self.spec.shards)
        added = Rows(words[order], rows.heap)
        found = probes.current(self._store, added, bounds, keep=True)
        before = np.zeros(len(groups), np.int64)
        before[order[found.numbers]] = np.concatenate([part.words[:, self._count.word] for part in found.parts])
        places = np.lexsort((*self._sequence(rows), groups.numbers))
        firsts = np.repeat(np.concatenate([[0], np.cumsum(groups.sizes)[:-1]]), groups.sizes)
        numbers = before[groups.numbers[places]] + np.arange(len(rows)) - firsts + 1
        chosen = slice(None) if self.spec.limit is None else numbers <= self.spec.limit
        self._numbered.append((Rows(rows.words[places[chosen]], rows.heap), numbers[chosen]))
        return added, bounds

    def _sequence(self, rows: Rows) -> tuple[np.ndarray, ...]:
        """What rows of a key are ordered by, the most important last; equal ones stay as they came."""
        if self._time is None:
            return ()
        untimed = rows.words[:, VALID] >> self._time.bit & 1 == 0
        return np.where(untimed, 0, rows.words[:, self._time.word]), untimed

    def advance(self, epoch: int, late_before: int, watermark: int) -> list[pa.RecordBatch]:
        self._check_newest(epoch)
        numbered, self._numbered = self._numbered, []
        return [batch for rows, numbers in numbered for batch in self._batches(rows, numbers)]

    def _batches(self, rows: Rows, numbers: np.ndarray) -> list[pa.RecordBatch]:
        out, at = [], 0
        for piece in output_pieces(rows):
            valid = ValidBits(piece)
            names = [column.name for column in self.spec.columns]
            arrays = [decoded(piece, valid, place_of(self.spec, name, self._layout)) for name in names]
            arrays.append(pa.array(numbers[at : at + len(piece)]))
            out.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
            at += len(piece)
        return out

    def undo(self, epoch: int) -> None:
        self._numbered = []
        super().undo(epoch)
