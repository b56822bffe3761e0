"""The keys of an epoch: those that have rows and those that are due, in a fixed order, cut for calls of bounded size.

Invariants
- Keys are numbered by shard, then by hash. A call gets a range of them with all their rows; keys with one hash are
  never parted, so that a range of keys is a range of hashes.
- A row is given in the order of its key, then of its time, then of all its columns: what a function sees does not
  depend on the order in which rows came.

Threads: one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.operators.rows.row_order import in_order
from tailrace.state.hash_table.table import Table
from tailrace.state.layout import HASH, VALID, RecordLayout
from tailrace.state.rows.rows import Rows, plain

_KEY, _PLACE = "__key", "__place"


@dataclass(frozen=True)
class Piece:
    """Keys ``first`` to ``end`` (half-open), and which of the epoch's rows are theirs."""

    first: int
    end: int
    rows: np.ndarray


class EpochKeys:
    """``layout``: of keys without any value. ``parts``: rows that begin with such keys."""

    def __init__(self, layout: RecordLayout, parts: Sequence[Rows], shard_count: int) -> None:
        distinct = Table(layout, rows_expected=sum(len(part) for part in parts))
        for part in parts:
            keys = key_rows(part, layout)
            distinct.begin(len(keys))
            distinct.merge(keys.words, keys.heap, 0, len(keys), replace=True)
            distinct.forget()
        rows = distinct.rows_of(distinct.panes(1))
        hashes = distinct.word(rows, HASH)
        order = np.lexsort((hashes, hashes % shard_count))
        self.layout = layout
        self._shard_count = shard_count
        self._table = distinct
        self.rows = plain(distinct.copy(rows[order]))
        self.shards = hashes[order] % shard_count
        self._number = np.full(int(rows.max()) + 1 if len(rows) else 0, -1, np.int64)
        self._number[rows[order]] = np.arange(len(rows))

    def __len__(self) -> int:
        return len(self.rows)

    def numbers(self, rows: Rows) -> np.ndarray:
        """The number of each row's key, -1 where it is none of these."""
        at = self._table.locate(rows)
        return np.where(at >= 0, self._number[np.maximum(at, 0)], -1) if len(self._number) else at

    def parts(self, piece: Piece) -> tuple[Rows, np.ndarray]:
        """The keys of a piece, and where those of each shard begin."""
        bounds = np.searchsorted(self.shards[piece.first : piece.end], np.arange(self._shard_count + 1))
        return Rows(self.rows.words[piece.first : piece.end], self.rows.heap), bounds

    def pieces(self, numbers: np.ndarray, rows_max: int) -> Iterator[Piece]:
        """Ranges of keys with about ``rows_max`` rows, state included. ``numbers``: of the keys of all rows."""
        order = np.argsort(numbers, kind="stable")
        row_ends = np.cumsum(np.bincount(numbers, minlength=len(self)))
        hashes = self.rows.words[:, HASH]
        cuts = np.append(np.flatnonzero(hashes[1:] != hashes[:-1]) + 1, len(self))  # where a call may end
        sizes = row_ends[cuts - 1] + cuts  # all rows and keys before each
        first = done = 0
        while first < len(self):
            at = max(int(np.searchsorted(sizes, done + rows_max, side="right")) - 1, 0)
            if cuts[at] <= first:
                at = int(np.searchsorted(cuts, first, side="right"))
            end = int(cuts[at])
            low = int(row_ends[first - 1]) if first else 0
            yield Piece(first, end, order[low : int(row_ends[end - 1])])
            first, done = end, int(sizes[at])


def key_rows(rows: Rows, layout: RecordLayout) -> Rows:
    """Copies of only the keys of rows that begin with such."""
    words = np.ascontiguousarray(rows.words[:, : layout.words])
    if np.shares_memory(words, rows.words):
        words = words.copy()
    words[:, VALID] &= layout.key_mask
    return Rows(words, rows.heap)


def ordered(columns: dict[str, pa.Array], keys: np.ndarray, times: np.ndarray) -> dict[str, pa.Array]:
    """Rows by the place of their key, then by time; only where these are equal, by every column too."""
    order = np.lexsort((times, keys))
    keys, times = keys[order], times[order]
    same = (keys[1:] == keys[:-1]) & (times[1:] == times[:-1])
    if same.any():
        tied = np.append(False, same) | np.append(same, False)
        group = np.cumsum(np.append(True, ~same))[tied]
        chosen = order[tied]
        names = list(columns)
        some = {name: columns[name].take(pa.array(chosen)) for name in names}
        some |= {_KEY: pa.array(group), _PLACE: pa.array(chosen)}
        order[tied] = np.asarray(in_order(some, [_KEY, *names])[_PLACE])
    return {name: column.take(pa.array(order)) for name, column in columns.items()}
