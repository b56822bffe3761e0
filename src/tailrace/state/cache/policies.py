"""Cache policies, which choose the entries to evict: by timestamp, least recently used, or by Clock.

A policy keeps one number for each entry, its *rank*, in an array that the cache owns and that moves with its entries;
``victims`` reads the ranks of all entries and names those to evict. Entries are numbered in the order in which they
came, which decides between equals.

- ``timestamp``: the rank is an event time, the latest of the entry's accesses and of the hints that name it.
  Hinted entries have later times than used ones, so they stay until their rows have come.
- ``lru``: the rank counts accesses; a hint counts as one.
- ``clock``: the rank is a mark, set by accesses and hints, taken away by the hand that looks for victims.

Threads: none of its own; the owner has a lock.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from tailrace.state.cache import id_kernels as ik

POLICIES = ("timestamp", "lru", "clock")
NEVER = -(2**63)
"""The rank of an entry that nobody has used."""


class Policy(Protocol):
    def use(self, ranks: np.ndarray, at: np.ndarray, times: np.ndarray) -> None:
        """Entries ``at`` (in the order of their accesses, any of them several times) are used at these event times."""
        ...

    def victims(self, ranks: np.ndarray, may_go: np.ndarray, wanted: int) -> np.ndarray:
        """Numbers of at most ``wanted`` entries that are to go, ascending. Clock changes ranks."""
        ...

    def renumbered(self, kept: np.ndarray) -> None:
        """Entries have new numbers: entry ``kept[i]`` is now entry ``i``."""
        ...


def policy_of(name: str) -> Policy:
    if name not in POLICIES:
        raise ValueError(f"no cache policy {name!r}: one of {', '.join(POLICIES)}")
    made: dict[str, type[Policy]] = {"timestamp": ByTimestamp, "lru": LeastRecentlyUsed, "clock": Clock}
    return made[name]()


class ByTimestamp:
    def use(self, ranks: np.ndarray, at: np.ndarray, times: np.ndarray) -> None:
        np.maximum.at(ranks, at, times)

    def victims(self, ranks: np.ndarray, may_go: np.ndarray, wanted: int) -> np.ndarray:
        return smallest(ranks, may_go, wanted)

    def renumbered(self, kept: np.ndarray) -> None:
        """Ranks move with their entries."""


class LeastRecentlyUsed:
    def __init__(self) -> None:
        self._count = 0

    def use(self, ranks: np.ndarray, at: np.ndarray, times: np.ndarray) -> None:
        ranks[at] = self._count + np.arange(len(at))  # of an entry's several, the last one stays
        self._count += len(at)

    def victims(self, ranks: np.ndarray, may_go: np.ndarray, wanted: int) -> np.ndarray:
        return smallest(ranks, may_go, wanted)

    def renumbered(self, kept: np.ndarray) -> None:
        """Ranks move with their entries."""


class Clock:
    def __init__(self) -> None:
        self._hand = 0

    def use(self, ranks: np.ndarray, at: np.ndarray, times: np.ndarray) -> None:
        ranks[at] = 1

    def victims(self, ranks: np.ndarray, may_go: np.ndarray, wanted: int) -> np.ndarray:
        out = np.empty(max(wanted, 0), np.int64)
        found, hand = ik.sweep(ranks, may_go.copy(), len(ranks), self._hand, wanted, out)
        self._hand = int(hand)
        return np.sort(out[:found])

    def renumbered(self, kept: np.ndarray) -> None:
        self._hand = int(np.searchsorted(kept, self._hand))


def smallest(ranks: np.ndarray, may_go: np.ndarray, wanted: int) -> np.ndarray:
    """The entries that may go with the smallest ranks; of equal ones, the first."""
    numbers = np.flatnonzero(may_go)
    if wanted >= len(numbers):
        return numbers
    if wanted <= 0:
        return numbers[:0]
    own = ranks[numbers]
    edge = np.partition(own, wanted - 1)[wanted - 1]
    below = own < edge
    equal = np.flatnonzero(own == edge)[: wanted - int(below.sum())]
    below[equal] = True
    going: np.ndarray = numbers[below]
    return going
