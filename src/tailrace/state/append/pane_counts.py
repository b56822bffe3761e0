"""How much of a run lies before a pane: known without a look at its index, which may lie on disk.

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
    """Rows of lists, and bytes."""

    def __init__(self, panes: np.ndarray, pane_max: int) -> None:
        """``panes``: of all lists, of which a sample is looked at; ``pane_max``: the last of them. None is counted."""
        sample = np.sort(panes[:: max(1, len(panes) // _SAMPLES)])
        latest = np.unique(sample)
        if len(latest) > RANGES:
            latest = sample[:: len(sample) // RANGES]
        self._latest = np.unique(np.append(latest, pane_max))  # pane of each range
        self._rows, self._bytes = np.zeros((2, len(self._latest)), np.int64)

    @property
    def nbytes(self) -> int:
        return int(self._latest.nbytes + self._rows.nbytes + self._bytes.nbytes)

    def add(self, panes: np.ndarray, rows: np.ndarray, nbytes: np.ndarray) -> None:
        """Lists come; with negative numbers they go."""
        if len(panes):
            ranges = self._range_of(panes)
            for counts, numbers in ((self._rows, rows), (self._bytes, nbytes)):
                counts += np.bincount(ranges, weights=numbers, minlength=len(counts)).astype(np.int64)

    def rows_from(self, pane: int) -> int:
        """Rows that do not lie before it."""
        return int(self._rows[np.searchsorted(self._latest, pane) :].sum())

    def bytes_from(self, pane: int) -> int:
        """Their bytes."""
        return int(self._bytes[np.searchsorted(self._latest, pane) :].sum())

    def counted_from(self, panes: np.ndarray, pane: int) -> np.ndarray:
        """Whether rows of these panes are among ``rows_from``."""
        counted: np.ndarray = self._range_of(panes) >= np.searchsorted(self._latest, pane)
        return counted

    def _range_of(self, panes: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._latest, panes)
