"""Times at which records have to be looked at, of one shard.

Invariants
- A time is a hint: who takes it looks at the record, which may have moved on or gone, and sets another where needed. So
  there is one for each record, however often it is touched, and one too many does no harm.
- Sorted runs, each more than twice as long as the next: setting costs a few moves a hint, and taking costs what is
  taken, never what waits.

Threads: one at a time.
"""

from __future__ import annotations

import numpy as np


class Timers:
    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []  # int64[n, 2] of (time, row), sorted by time

    @property
    def nbytes(self) -> int:
        return sum(run.nbytes for run in self._runs)

    def put(self, times: np.ndarray, rows: np.ndarray) -> None:
        if not len(rows):
            return
        run = np.stack([times, rows], axis=1)
        self._runs.append(run[np.argsort(run[:, 0], kind="stable")])
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            both = np.concatenate([self._runs[-2], self._runs[-1]])
            # Stable sorting finds the two sorted halves and merges them.
            self._runs[-2:] = [both[np.argsort(both[:, 0], kind="stable")]]

    def take(self, until: int) -> np.ndarray:
        """Take out those at or before ``until``, as (time, row)."""
        taken, left = [np.empty((0, 2), np.int64)], []
        for run in self._runs:
            cut = int(np.searchsorted(run[:, 0], until, side="right"))
            taken.append(run[:cut])
            # What was taken is held in memory with the rest until half is gone.
            rest = run[cut:]
            base = run if run.base is None else run.base
            if len(rest):
                left.append(rest if 2 * len(rest) > len(base) else rest.copy())
        self._runs = left
        return np.concatenate(taken)
