"""Rows in lists by key and pane, and an index of them: what holistic aggregates over unaligned windows share.

Invariants
- A row is appended once. The index is a small record for each list, or for each key: it says which lists there are and
  how long, so that what is read together has a bound. It lies in a store of its own, with a part of the memory budget,
  and both move together, epoch by epoch.
- Where the index can be made of the rows, the lists alone are checkpointed.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from tailrace.operators.aggregate.holistic.results import GroupResults, Results
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.output import EpochOutput
from tailrace.operators.resources import Resources
from tailrace.operators.rows.groups import Groups
from tailrace.operators.rows.row_stores import list_store
from tailrace.operators.store_operator import Companion, OverStore
from tailrace.operators.user_code.window_function import UserFunction
from tailrace.state.append.list_instance import Stats
from tailrace.state.append.unaligned import AppendUnalignedStore
from tailrace.state.layout import VALID, RecordLayout
from tailrace.state.rows.rows import Rows
from tailrace.state.sections.sections import to_section

INDEX_SHARE = 4
"""Of the memory budget, the lists get all but one part in so many: the rest is for the index."""


class ListOperator(OverStore[AppendUnalignedStore]):
    """A subclass keeps the index: it says which lists an epoch emits, and passes the rest on."""

    def __init__(
        self,
        spec: AggregateSpec,
        shards: Iterable[int],
        resources: Resources,
        *index: Companion,
        results: Results | None = None,
    ) -> None:
        """``resources``: of the lists. ``results``: what is made of a group; None: its aggregates."""
        self.spec = spec
        self._layout = spec.layout()
        self._results: Results = GroupResults(spec) if results is None else results
        self._function = None if spec.function is None else UserFunction(spec)
        self._resources = resources
        super().__init__(list_store(self._layout, shards, spec.shards, resources), *index)
        self._appended = 0  # rows of the newest epoch

    def list_stats(self) -> Stats:
        """What the store of its lists has done."""
        return self._store.stats()

    def updated(self, epoch: int) -> int:
        self._check_newest(epoch)
        return self._appended

    def advance(self, epoch: int, late_before: int, watermark: int) -> Sequence[pa.RecordBatch]:
        """Emit the windows that changed, that close by ``watermark``, or all; drop what no later row can reach."""
        self._check_newest(epoch)
        with self.spec.naming_overflow(epoch):
            return EpochOutput(self._output(epoch, late_before, watermark), self._resources)

    def _output(self, epoch: int, late_before: int, watermark: int) -> Iterator[pa.RecordBatch]:
        """The epoch's output; what goes with it is dropped when the last of it was made."""
        raise NotImplementedError

    def undo(self, epoch: int) -> None:
        self._appended = 0
        super().undo(epoch)

    def _groups(self, rows: Rows, offsets: np.ndarray) -> Groups:
        """Rows that were read from lists, by name of their columns, and where each group begins."""
        section = to_section(rows, self._layout)
        names = [field.name for field in (*self.spec.kept_keys, *self.spec.rows)]
        return Groups(dict(zip(names, section.columns[2:], strict=True)), offsets)


def lists_of(records: Rows, index: RecordLayout, lists: RecordLayout) -> Rows:
    """The lists that these records of the index are about, as rows that name them.

    Keys lie in the same words in both layouts.
    """
    first = index.accumulators[0].word
    words = np.zeros((len(records), lists.words), np.int64)
    words[:, :first] = records.words[:, :first]
    words[:, VALID] &= lists.key_mask
    return Rows(words, records.heap)


def index_records(rows: Rows, index: RecordLayout) -> np.ndarray:
    """For each row the words of a record of the index: its key and pane, every value valid and still to be put in."""
    first = index.accumulators[0].word
    words = np.empty((len(rows), index.words), np.int64)
    words[:, :first] = rows.words[:, :first]
    words[:, VALID] &= index.key_mask
    for place in index.accumulators:
        words[:, VALID] |= 1 << place.bit
    return words
