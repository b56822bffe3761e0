"""Rows of several groups side by side: what a function over whole groups sees, and how groups are found.

A group is one key in one window; its rows are adjacent, in no order that means anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class Groups:
    """``columns`` of all rows, by name; group ``g`` is rows ``offsets[g]`` to ``offsets[g + 1]``, never empty."""

    columns: dict[str, pa.Array]
    offsets: np.ndarray  # int64[groups + 1]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> np.ndarray:
        return np.diff(self.offsets)

    @property
    def numbers(self) -> np.ndarray:
        """The number of each row's group."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.sizes)

    def firsts(self, name: str) -> pa.Array:
        """The column's value in the first row of each group: the group's own, where it is a key."""
        return self.columns[name].take(pa.array(self.offsets[:-1]))

    def where(self, keep: np.ndarray) -> Groups:
        """Only the groups that are marked."""
        if keep.all():
            return self
        chosen = pa.array(np.flatnonzero(np.repeat(keep, self.sizes)))
        sizes = self.sizes[keep]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return Groups({name: column.take(chosen) for name, column in self.columns.items()}, offsets)


def in_order(columns: dict[str, pa.Array], names: Sequence[str]) -> dict[str, pa.Array]:
    """The same rows, ordered by these columns; null comes first."""
    ranks = [ranks_with_null(columns[name]) for name in reversed(names)]
    order = pa.array(np.lexsort(ranks))
    return {name: column.take(order) for name, column in columns.items()}


def ranks_with_null(array: pa.Array) -> np.ndarray:
    """As :func:`sort_ranks`, with null before any value."""
    if array.null_count == 0:
        return sort_ranks(array)
    valid = np.asarray(pc.is_valid(array).to_numpy(zero_copy_only=False), bool)
    ranks = np.zeros(len(array), np.int64)
    ranks[valid] = 1 + sort_ranks(array.drop_null())
    return ranks


def sort_ranks(array: pa.Array) -> np.ndarray:
    """Numbers that order and tell apart values (none is null) as Spark does: NaN is the largest, -0.0 is 0.0."""
    if pa.types.is_floating(array.type):
        doubles = np.asarray(array.cast(pa.float64())) + 0.0  # -0.0 becomes 0.0
        _, ranks = np.unique(doubles, return_inverse=True)  # all NaNs are one, and last
        return ranks.astype(np.int64)
    return np.asarray(pc.rank(array, tiebreaker="dense")).astype(np.int64)
