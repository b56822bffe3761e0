"""The undo logs of one table: what each epoch that can still be undone has changed there.

Invariants
- Logs are opened and undone at one end, the newest, and forgotten at the other. Only the newest is written.
- Where the newest log ends stands in the table's counters (``UNDO_END``, ``IMAGES_END``), where kernels move it; where
  the others end, in themselves. Who is given the newest log finds it there too, as it was at that time.
- In ``rows`` a record stands once, by its first change: ``row`` where ``images`` has it as it was before, in the order
  of these, and ``~row`` where there was none.
- Stamps grow. A record's stamp tells whether the newest log has an entry for it.
- There are no more images than records that were there when the log was opened: room is made for no more. Of an
  epoch that brings most of its records from disk, that is little.
- The arrays of the log that was forgotten last are kept for the next one: epochs tend to be of one size.

Threads: as the table, one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tailrace.state.hash_table import kernels as tk

_NO_PANES = np.empty((0, tk.PANE_WORDS), np.int64)
_NO_ROWS = np.empty(0, np.int64)


@dataclass
class UndoLog:
    """What one epoch changed in one table."""

    stamp: int
    rows: np.ndarray
    images: np.ndarray
    arena_end: int
    arena_waste: int
    images_max: int
    expired: np.ndarray = field(default_factory=lambda: _NO_PANES)
    removed: list[np.ndarray] = field(default_factory=list)
    rows_end: int = 0
    images_end: int = 0

    @property
    def nbytes(self) -> int:
        removed = sum(rows.nbytes for rows in self.removed)
        return int(self.images_end * self.images.shape[1] * 8 + self.rows_end * 8 + removed)

    @property
    def touched_rows(self) -> np.ndarray:
        """Row numbers of records that were changed or made, in the order of their first change."""
        rows = self.rows[: self.rows_end]
        return np.where(rows < 0, ~rows, rows)

    @property
    def made_rows(self) -> np.ndarray:
        """Row numbers of records that were made, in that order."""
        rows = self.rows[: self.rows_end]
        made: np.ndarray = ~rows[rows < 0]
        return made

    @property
    def removed_rows(self) -> np.ndarray:
        return np.concatenate(self.removed) if self.removed else _NO_ROWS


class UndoLogs:
    def __init__(self, counters: np.ndarray, words: int) -> None:
        """``counters``: the table's own, for good. ``words``: of a record's image."""
        self._counters = counters
        self._words = words
        self._logs: list[UndoLog] = []
        self._spare: UndoLog | None = None
        self._stamp = 0

    def __iter__(self) -> Iterator[UndoLog]:
        """Oldest first."""
        if self._logs:
            self.newest()
        return iter(self._logs)

    @property
    def nbytes(self) -> int:
        return sum(log.nbytes for log in self)

    def newest(self) -> UndoLog:
        log = self._logs[-1]
        log.rows_end, log.images_end = int(self._counters[tk.UNDO_END]), int(self._counters[tk.IMAGES_END])
        return log

    @property
    def oldest_stamp(self) -> int | None:
        """Records with an earlier stamp are in no log."""
        return self._logs[0].stamp if self._logs else None

    def open(self, rows_expected: int) -> None:
        """Later changes belong to a new log."""
        if self._logs:
            self.newest()
        self._stamp += 1
        spare, self._spare = self._spare, None
        there = int(self._counters[tk.LIVE])
        if spare is not None and len(spare.rows) >= rows_expected and len(spare.images) >= min(rows_expected, there):
            rows, images = spare.rows, spare.images
        else:
            rows = np.empty(rows_expected, np.int64)
            images = np.empty((min(rows_expected, there), self._words), np.int64)
        end, waste = int(self._counters[tk.ARENA_END]), int(self._counters[tk.ARENA_WASTE])
        self._logs.append(UndoLog(self._stamp, rows, images, end, waste, there))
        self._counters[tk.UNDO_END] = self._counters[tk.IMAGES_END] = 0

    def with_room(self, more: int) -> UndoLog:
        """The newest log, with room for so many entries more."""
        log = self._logs[-1]
        rows = int(self._counters[tk.UNDO_END]) + more
        if rows > len(log.rows):
            log.rows = grown(log.rows, max(rows, 2 * len(log.rows)))
        images = min(int(self._counters[tk.IMAGES_END]) + more, log.images_max)
        if images > len(log.images):
            log.images = grown(log.images, max(images, min(2 * len(log.images), log.images_max)))
        return log

    def take_newest(self) -> UndoLog:
        """To be undone. The counters still hold its ends until ``reopen``, which must follow."""
        self.newest()
        return self._logs.pop()

    def reopen(self) -> None:
        """Once what came after it is undone, the log before is the newest."""
        if self._logs:
            self._counters[tk.UNDO_END] = self._logs[-1].rows_end
            self._counters[tk.IMAGES_END] = self._logs[-1].images_end

    def take_oldest(self) -> UndoLog:
        """To be forgotten. What it holds stays readable until the next log is opened."""
        self._spare = self._logs.pop(0)
        return self._spare

    def renumbered(self, moved: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, list[np.ndarray]]]:
        """What ``renumber`` will put in place where row ``r`` becomes ``moved[r]``; so far nothing changes.

        A record that a log has made may go, where ``moved`` is -1: the log then knows nothing of it any more.
        """
        ready = []
        for log in self:
            expired = log.expired.copy()
            expired[:, tk.PANE_HEAD] = moved[expired[:, tk.PANE_HEAD]]
            rows = log.rows[: log.rows_end]
            stays = (rows >= 0) | (moved[np.where(rows < 0, ~rows, 0)] >= 0)
            ready.append((_moved(rows[stays], moved), expired, [moved[part] for part in log.removed]))
        return ready

    def renumber(self, ready: list[tuple[np.ndarray, np.ndarray, list[np.ndarray]]]) -> None:
        """Take over what ``renumbered`` has made. Cannot fail half-way."""
        for log, (rows, expired, removed) in zip(self._logs, ready, strict=True):
            log.rows[: len(rows)] = rows
            log.rows_end = len(rows)
            log.expired, log.removed = expired, removed
        if self._logs:
            self._counters[tk.UNDO_END] = self._logs[-1].rows_end
        self._spare = None


def _moved(rows: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """Entries of a log (``row`` or ``~row``) with the rows' new numbers."""
    return np.where(rows < 0, ~moved[np.where(rows < 0, ~rows, 0)], moved[np.where(rows < 0, 0, rows)])


def grown(array: np.ndarray, length: int) -> np.ndarray:
    """A longer copy; what is new holds anything."""
    new = np.empty((length, *array.shape[1:]), array.dtype)
    new[: len(array)] = array
    return new
