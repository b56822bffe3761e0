"""The miss-ratio curve: of how many accesses a cache of a given size would not have the key, from stack distances.

The cache evicts the least recently used key, and a delete frees its key's place. First accesses, and those after a
delete, miss in a cache of any size: they are counted apart, since a store that knows its keys need not look for them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailrace.lab.gadget.analysis.stack_distance import cache_depths
from tailrace.lab.gadget.traces.trace import Trace


@dataclass(frozen=True)
class MissRatios:
    """``hits[c]``: how many accesses a cache of ``c`` entries has, up to the size beyond which nothing changes."""

    accesses: int
    hits: np.ndarray

    @property
    def entries_max(self) -> int:
        """A larger cache has no more hits."""
        return len(self.hits) - 1

    @property
    def first_share(self) -> float:
        """Of accesses, those that no cache has."""
        return 1 - float(self.hits[-1]) / self.accesses if self.accesses else 0.0

    def ratio(self, entries: int) -> float:
        """The share of accesses that miss, first ones among them."""
        if not self.accesses:
            return 0.0
        return 1 - float(self.hits[min(entries, self.entries_max)]) / self.accesses

    def avoidable(self, entries: int) -> float:
        """The same without first accesses: what a larger cache could still avoid."""
        return max(0.0, self.ratio(entries) - self.first_share)

    def entries_for(self, share: float) -> int:
        """The smallest cache with so large a share of the hits that an unlimited one has."""
        return int(np.searchsorted(self.hits, np.ceil(share * self.hits[-1] - 1e-9), side="left"))


def miss_ratios(trace: Trace) -> MissRatios:
    found = cache_depths(trace)
    known = found[found >= 0]
    # A cache of c entries has what is at depth 0 to c - 1.
    counts = np.bincount(known) if len(known) else np.empty(0, np.int64)
    return MissRatios(len(trace), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
