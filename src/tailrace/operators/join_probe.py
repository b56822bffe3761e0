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

from tailrace.operators.join_output import counted
from tailrace.operators.join_spec import LEFT
from tailrace.operators.join_times import JoinTimes, KnownPanes, Moments
from tailrace.state.append_unaligned import AppendUnalignedStore
from tailrace.state.layout import PANE
from tailrace.state.runs import Slices, by_hash, key_offsets
from tailrace.state.table import Rows

_LOOKUPS_MAX = 1 << 20
_CANDIDATES_MAX = 1 << 18


@dataclass(frozen=True)
class Found:
    """Pairs: row ``at[i]`` of ``probing``, which is row ``source[at[i]]`` of those asked for, with a kept row."""

    probing: Rows
    source: np.ndarray
    at: np.ndarray
    kept: Rows
    kept_at: np.ndarray


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
        lookups = np.cumsum(np.sum([end - first for _, first, end in ranges], axis=0))
        key = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
        low = 0
        while low < len(probing):
            done = int(lookups[low - 1]) if low else 0
            high = max(low + 1, int(np.searchsorted(lookups, done + _LOOKUPS_MAX, "right")))
            part = [(panes, first[low:high], end[low:high]) for panes, first, end in ranges]
            row, pane_number, panes = _lookups(part)
            # Distinct lists: numbers of (key, pane) stand for them.
            lists, wanted = np.unique(key[low + row] * len(panes) + pane_number, return_inverse=True)
            words = probing.words[edges[:-1][lists // len(panes)]]
            words[:, PANE] = panes[lists % len(panes)]
            kept, offsets = self._store.read(Rows(words, probing.heap), remove=False)
            yield from self._filtered(probing, source, moments, side, low + row, kept, offsets, wanted.reshape(-1))
            low = high

    def _filtered(
        self,
        probing: Rows,
        source: np.ndarray,
        moments: Moments,
        side: int,
        row: np.ndarray,
        kept: Rows,
        offsets: np.ndarray,
        wanted: np.ndarray,
    ) -> Iterator[Found]:
        """The pairs of ``row[i]`` with list ``wanted[i]`` that belong together."""
        others = self._times.moments(kept, 1 - side)
        needed = others.expiry >= self._store.horizon
        for item, kept_at in counted(offsets[wanted], np.diff(offsets)[wanted], _CANDIDATES_MAX):
            at = row[item]
            pairs = (moments, at, others, kept_at) if side == LEFT else (others, kept_at, moments, at)
            fits = np.flatnonzero(self._times.match(*pairs) & needed[kept_at])
            if len(fits):
                yield Found(probing, source, at[fits], kept, kept_at[fits])


def _lookups(
    ranges: list[tuple[np.ndarray, np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(row, number of pane) for each pane that a row looks into, and the panes that these numbers mean."""
    rows, numbers, before = [], [], 0
    for panes, first, end in ranges:
        counts = end - first
        row = np.repeat(np.arange(len(first)), counts)
        starts = np.repeat(first - (np.cumsum(counts) - counts), counts)
        rows.append(row)
        numbers.append(before + starts + np.arange(len(row)))
        before += len(panes)
    return np.concatenate(rows), np.concatenate(numbers), np.concatenate([panes for panes, _, _ in ranges])
