"""Rows of one side in, and what they match among the kept rows of the other side.

Invariants
- Probing rows are grouped by exact key, and lists are found by exact key: a hash decides nothing.
- Every list is read once for all probing rows that look for it, as long as these fit one step; a step looks for a
  bounded number of lists and counts out a bounded number of pairs at a time.

Threads: one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tailrace.operators.join.output import counted
from tailrace.operators.join.spec import LEFT
from tailrace.operators.join.times import JoinTimes, KnownPanes, Moments, Ranges
from tailrace.state.append.unaligned import AppendUnalignedStore
from tailrace.state.layout import PANE
from tailrace.state.rows.arrange import Slices, by_hash
from tailrace.state.rows.groups import key_offsets
from tailrace.state.rows.rows import Rows

_LOOKUPS_MAX = 1 << 20
_CANDIDATES_MAX = 1 << 18
_LONG_LISTS = 4


@dataclass(frozen=True)
class Found:
    """Pairs: row ``at[i]`` of ``probing``, which is row ``source[at[i]]`` of those asked for, with a kept row."""

    probing: Rows
    source: np.ndarray
    at: np.ndarray
    kept: Rows
    kept_at: np.ndarray

    @property
    def kept_rows(self) -> Rows:
        """The kept rows of the pairs, each once."""
        return Rows(self.kept.words[np.unique(self.kept_at)], self.kept.heap)


class Prober:
    def __init__(self, store: AppendUnalignedStore, times: JoinTimes, known: KnownPanes) -> None:
        self._store = store
        self._layout = store.layout
        self._times = times
        self._known = known

    def matches(self, rows: Rows, chosen: np.ndarray, side: int) -> Iterator[Found]:
        """Every kept row of the other side that matches one of the ``chosen`` rows (none has a null key)."""
        if not len(chosen):
            return
        one = Slices(rows, chosen, chosen + 1)
        arranged = by_hash([one], [np.zeros(len(chosen), np.int64)], 1, self._layout)
        probing, source = arranged.rows, chosen[arranged.order]
        edges = key_offsets(probing, self._layout)
        moments = self._times.moments(probing, side)
        ranges = list(self._times.partners(moments, side, self._known, self._store.horizon))
        if not ranges:
            return
        lookups = np.cumsum(np.sum([part.end - part.first for part in ranges], axis=0))
        key = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
        low = 0
        while low < len(probing):
            done = int(lookups[low - 1]) if low else 0
            high = max(low + 1, int(np.searchsorted(lookups, done + _LOOKUPS_MAX, "right")))
            asked = _lookups([part.of(low, high) for part in ranges])
            row, panes = low + asked.row, asked.panes
            # Distinct lists: numbers of (key, pane) stand for them.
            lists, wanted = np.unique(key[row] * len(panes) + asked.pane, return_inverse=True)
            words = probing.words[edges[:-1][lists // len(panes)]]
            words[:, PANE] = panes[lists % len(panes)]
            kept, offsets = self._store.read(Rows(words, probing.heap), remove=False)
            others = self._times.moments(kept, 1 - side)
            candidates = _candidates(others.expiry, offsets, wanted.reshape(-1), asked)
            for at, kept_at in self._filtered(moments, row, others, candidates, side):
                yield Found(probing, source, at, kept, kept_at)
            low = high

    def _filtered(
        self, moments: Moments, row: np.ndarray, others: Moments, candidates: _Candidates, side: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Probing rows and kept rows that belong together, of all candidates."""
        needed = others.expiry >= self._store.horizon
        for item, number in counted(candidates.first, candidates.count, _CANDIDATES_MAX):
            at = row[item]
            kept_at = number if candidates.order is None else candidates.order[number]
            pairs = (moments, at, others, kept_at) if side == LEFT else (others, kept_at, moments, at)
            fits = np.flatnonzero(self._times.match(*pairs) & needed[kept_at])
            if len(fits):
                yield at[fits], kept_at[fits]


@dataclass(frozen=True)
class _Lookups:
    """For each pane that a row looks into: the row, the pane's number in ``panes``, and the expiries looked for."""

    row: np.ndarray
    pane: np.ndarray
    low: np.ndarray
    high: np.ndarray
    panes: np.ndarray


def _lookups(ranges: list[Ranges]) -> _Lookups:
    parts, before = [], 0
    for part in ranges:
        counts = part.end - part.first
        row = np.repeat(np.arange(len(counts)), counts)
        pane = np.arange(len(row)) + (before + part.first - (np.cumsum(counts) - counts))[row]
        parts.append((row, pane, part.low[row], part.high[row]))
        before += len(part.panes)
    row, pane, low, high = (np.concatenate(columns) for columns in zip(*parts))
    return _Lookups(row, pane, low, high, np.concatenate([part.panes for part in ranges]))


@dataclass(frozen=True)
class _Candidates:
    """For each lookup ``count`` kept rows from ``first`` on, counted in ``order`` (None: as they are)."""

    order: np.ndarray | None
    first: np.ndarray
    count: np.ndarray


def _candidates(expiry: np.ndarray, offsets: np.ndarray, wanted: np.ndarray, asked: _Lookups) -> _Candidates:
    """All rows of the wanted lists; of long lists only those with a fitting expiry, found by sorting.

    Without that, a key with many rows in a pane would cost their number squared, however few of them match.
    """
    counts = np.diff(offsets)
    if int(counts[wanted].sum()) <= _LONG_LISTS * (len(expiry) + len(wanted)):
        return _Candidates(None, offsets[wanted], counts[wanted])
    values, rank = np.unique(expiry, return_inverse=True)
    room = len(values) + 1
    keys = np.repeat(np.arange(len(counts)) * room, counts) + rank.reshape(-1)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.searchsorted(keys, wanted * room + np.searchsorted(values, asked.low, "left"))
    end = np.searchsorted(keys, wanted * room + np.searchsorted(values, asked.high, "right"))
    return _Candidates(order, first, np.maximum(end - first, 0))
