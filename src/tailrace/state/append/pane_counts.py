"""How many rows of a run lie before a pane: known without a look at its index, which may lie on disk.

Panes are counted in at most ``RANGES`` ranges, cut where a sample of the lists says that they hold about equally many.
A range is before a pane when all of its panes are. So at most one range is counted although it is partly before it, and
where a run has few panes, none is.

Threads: as the run that owns it.
"""

from __future__ import annotations

import numpy as np

RANGES = 256
_SAMPLES = 16 * RANGES


class PaneCounts:
    def __init__(self, panes: np.ndarray, rows: np.ndarray) -> None:
        """The pane of each list, and how many rows it has."""
        sample = np.sort(panes[:: max(1, len(panes) // _SAMPLES)])
        latest = np.unique(sample)
        if len(latest) > RANGES:
            latest = sample[:: len(sample) // RANGES]
        self._latest = np.unique(np.append(latest, panes.max(initial=-(2**63))))  # pane of each range
        self._rows = np.zeros(len(self._latest), np.int64)
        self.add(panes, rows)

    @property
    def nbytes(self) -> int:
        return int(self._latest.nbytes + self._rows.nbytes)

    def add(self, panes: np.ndarray, rows: np.ndarray) -> None:
        """Lists come; with negative numbers of rows they go."""
        if len(panes):
            counts = np.bincount(self._range_of(panes), weights=rows, minlength=len(self._rows))
            self._rows += counts.astype(np.int64)

    def rows_from(self, pane: int) -> int:
        """Rows that do not lie before it."""
        return int(self._rows[np.searchsorted(self._latest, pane) :].sum())

    def counted_from(self, panes: np.ndarray, pane: int) -> np.ndarray:
        """Whether rows of these panes are among ``rows_from``."""
        counted: np.ndarray = self._range_of(panes) >= np.searchsorted(self._latest, pane)
        return counted

    def _range_of(self, panes: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._latest, panes)
