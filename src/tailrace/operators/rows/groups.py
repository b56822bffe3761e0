"""Rows of several groups side by side: what a function over whole groups sees.

A group is one key in one window; its rows are adjacent, in no order that means anything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa


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
