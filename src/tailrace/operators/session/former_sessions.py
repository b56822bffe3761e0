"""The sessions of before an epoch that it has changed, as they were: what a changelog takes back.

Invariants
- Rows only widen records, make new ones and join sessions. So a session of before lies in one of now, and has the
  records of that one which were there: those that the epoch's rows touched as they were (``records_before``), and all
  others as they are.
- Where a session of now has the bounds that one of before had, that one is the only one in it.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tailrace.operators.rows.intervals import sessions_of
from tailrace.state.hash_table.table import Table
from tailrace.state.layout import PANE, VALID
from tailrace.state.read_modify_write import probes
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows.rows import Rows, concat_rows


@dataclass(frozen=True)
class Found:
    """The records of sessions of now: so many each, newest first."""

    records: Rows
    sizes: np.ndarray


@dataclass(frozen=True)
class FormerSessions:
    """Session ``s`` is ``records[offsets[s]:offsets[s + 1]]``, newest first."""

    records: Rows
    places: np.ndarray  # of each record among those of the sessions of now
    offsets: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    within: np.ndarray  # the number of the session of now that has taken it in, ascending

    def __len__(self) -> int:
        return len(self.starts)

    def stayed(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Which of them still have their bounds, where those of the sessions of now are these."""
        same: np.ndarray = (self.starts == starts[self.within]) & (self.ends == ends[self.within])
        return same

    def between(self, low: int, high: int) -> FormerSessions:
        """Those in the sessions of now from one number to another, which are counted from there."""
        first, end = np.searchsorted(self.within, [low, high])
        records = slice(self.offsets[first], self.offsets[end])
        return FormerSessions(
            Rows(self.records.words[records], self.records.heap),
            self.places[records],
            self.offsets[first : end + 1] - self.offsets[first],
            self.starts[first:end],
            self.ends[first:end],
            self.within[first:end] - low,
        )


def records_before(store: ReadModifyWriteStore, frames: Sequence[tuple[Rows, np.ndarray]]) -> Table:
    """The records that these rows will touch as they are now; a tombstone for each that there is not."""
    layout = store.layout
    count = sum(len(rows) for rows, _ in frames)
    table = Table(layout, rows_expected=count)
    table.begin(count)
    for rows, _ in frames:
        words = rows.words.copy(order="C")
        words[:, VALID] &= layout.key_mask
        words[:, layout.accumulators[0].word :] = 0
        table.merge(words, rows.heap, 0, len(words), replace=True)
    for rows, bounds in frames:
        for found in probes.current(store, rows, bounds, keep=True).parts:
            table.merge(found.words, found.heap, 0, len(found), replace=True)
    return table


def former_of_panes(now: Found, before: Table, gap: int, low: int, high: int) -> FormerSessions:
    """Of sessions whose records lie in panes. ``low`` and ``high``: words of the first and last time."""
    records, places, numbers = _as_they_were(now, before)
    panes, firsts, lasts = records.words[:, PANE], records.words[:, low], records.words[:, high]
    goes_on = (numbers[1:] == numbers[:-1]) & (panes[:-1] - panes[1:] == gap) & (firsts[:-1] - lasts[1:] <= gap)
    begins = np.flatnonzero(np.append(True, ~goes_on)[: len(records)])
    offsets = np.append(begins, len(records))
    return FormerSessions(records, places, offsets, firsts[offsets[1:] - 1], lasts[begins] + gap, numbers[begins])


def former_of_intervals(now: Found, before: Table, low: int, high: int) -> FormerSessions:
    """Of sessions whose records are intervals. ``low`` and ``high``: words of their bounds."""
    records, places, numbers = _as_they_were(now, before)
    starts, ends = (np.ascontiguousarray(records.words[:, word]) for word in (low, high))
    found = sessions_of(numbers, starts, ends)
    order = found.newest_first
    records = Rows(records.words[order], records.heap)
    within = numbers[order][found.offsets[:-1]]
    return FormerSessions(records, places[order], found.offsets, found.starts, found.ends, within)


def _as_they_were(now: Found, before: Table) -> tuple[Rows, np.ndarray, np.ndarray]:
    """The records of now that there were before, as they were; their places, and the numbers of their sessions."""
    at = before.locate(now.records)
    touched = np.flatnonzero(at >= 0)
    known, untouched = touched[~before.tombstones(at[touched])], np.flatnonzero(at < 0)
    places = np.concatenate([untouched, known])
    same = Rows(now.records.words[untouched], now.records.heap)
    rows = concat_rows([same, before.copy(at[known])], before.layout)
    order = np.argsort(places)
    places = places[order]
    numbers = np.repeat(np.arange(len(now.sizes)), now.sizes)[places]
    return Rows(rows.words[order], rows.heap), places, numbers
