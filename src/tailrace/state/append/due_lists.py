"""Which lists on disk are due next, and so to be read ahead: as their trigger times say, or as a caller does.

Nothing of runs and segments changes but ``trigger_min``, which is brought up to date where it was looked for anyway.
Memory: so many lists as are looked for, and a part of one index, however many lists there are.

Threads: as the instance that owns the segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tailrace.state.append.list_runs import UNKNOWN, ListRun

_LIST_BYTES = 64
"""What a list takes in memory beside its rows, about."""


@dataclass(frozen=True)
class DueLists:
    """Order keys of lists that lie on disk, those that are due next first, and the bytes that copies of them take."""

    keys: np.ndarray
    sizes: np.ndarray
    bytes_read: int = 0  # to find them

    def fitting(self, bytes_max: int) -> np.ndarray:
        """The first ones, as far as there is room for them."""
        keys: np.ndarray = self.keys[np.cumsum(self.sizes) <= bytes_max]
        return keys


def by_triggers(segments: Sequence[ListRun], runs: Sequence[ListRun], count: int, wanted: np.ndarray) -> DueLists:
    """At most so many lists by their trigger times, in segments or in later runs, but not those wanted now."""
    # Twice as many as asked for: newer rows may have put off some, and some are wanted now.
    keys, bytes_read = _first_to_end(segments, 2 * count + len(wanted))
    keys = keys[~np.isin(keys, wanted)]
    latest = _latest(segments, runs, keys)
    order = np.argsort(latest, kind="stable")[:count]
    order = order[latest[order] < UNKNOWN]
    return DueLists(keys[order], _sizes(segments, keys)[order], bytes_read)


def first_of(segments: Sequence[ListRun], keys: np.ndarray, at_most: int) -> DueLists:
    """Of the lists with these order keys, which come in the order in which they are due, the first on disk."""
    ascending, first_at = np.unique(keys, return_index=True)
    sizes = _sizes(segments, ascending)
    order = np.argsort(first_at)
    order = order[sizes[order] > _LIST_BYTES][:at_most]
    return DueLists(ascending[order], sizes[order])


def _first_to_end(segments: Sequence[ListRun], count: int) -> tuple[np.ndarray, int]:
    """Order keys (ascending, distinct) of so many lists with the earliest triggers in their segments; bytes read.

    Segments that begin with later triggers than those are not looked at.
    """
    triggers, numbers, lists = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    bytes_read = 0
    for number in np.argsort([segment.trigger_min for segment in segments], kind="stable").tolist():
        segment = segments[number]
        if len(triggers) == count and (not count or triggers.max() <= segment.trigger_min):
            break
        bytes_read += segment.index.triggers.nbytes
        earliest = UNKNOWN
        for part in segment.parts():
            there = part.start + np.flatnonzero(segment.gone[part] == 0)
            own = segment.index.triggers[there]
            earliest = min(earliest, int(own.min(initial=UNKNOWN)))
            if len(triggers) == count:  # those that are due after all of these are left out
                there, own = (column[own < triggers.max()] for column in (there, own))
            triggers, lists = np.append(triggers, own), np.append(lists, there)
            numbers = np.append(numbers, np.full(len(there), number))
            if len(triggers) > count:
                chosen = np.argpartition(triggers, count - 1)[:count]
                triggers, numbers, lists = triggers[chosen], numbers[chosen], lists[chosen]
        if earliest < UNKNOWN:
            segment.trigger_min = earliest
    parts = [segment.index.keys[lists[numbers == number]] for number, segment in enumerate(segments)]
    return np.unique(np.concatenate([np.empty(0, np.uint64), *parts])), bytes_read


def _latest(segments: Sequence[ListRun], runs: Sequence[ListRun], keys: np.ndarray) -> np.ndarray:
    """By order key (ascending, distinct), the latest trigger of all."""
    latest = np.full(len(keys), -(2**63))
    for segment in segments:
        lists = segment.lists_with(keys)
        np.maximum.at(latest, np.searchsorted(keys, segment.index.keys[lists]), segment.index.triggers[lists])
    for run in runs:
        if len(run):
            at = np.minimum(np.searchsorted(run.index.keys, keys), len(run) - 1)
            here = (run.index.keys[at] == keys) & (run.gone[at] == 0)
            latest[here] = np.maximum(latest[here], run.index.triggers[at[here]])
    return latest


def _sizes(segments: Sequence[ListRun], keys: np.ndarray) -> np.ndarray:
    """By order key (ascending, distinct), the bytes that a copy of its rows on disk takes."""
    sizes = np.full(len(keys), _LIST_BYTES)
    for segment in segments:
        lists = segment.lists_with(keys)
        np.add.at(sizes, np.searchsorted(keys, segment.index.keys[lists]), segment.row_bytes(lists))
    return sizes
