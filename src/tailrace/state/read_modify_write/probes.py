"""Reads of a read-modify-write store by key, without changing it: of many shards at once, in memory and spilled.

The rows that are looked up lie shard by shard: those of shard ``s`` are ``bounds[s]`` to ``bounds[s + 1]``. They may be
of another layout than the records, as long as their keys come first and are the same.

Threads: one call at a time, and none beside a call that changes the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tailrace.state.hash_table.table import Table
from tailrace.state.layout import PANE
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.state.segments.positions import SegmentLookup

_FOREVER = 2**63 - 1


@dataclass(frozen=True)
class Current:
    """Copies of records: those in tables, each beside the number of the row that matches it, and spilled ones."""

    hot: Rows
    hot_numbers: np.ndarray
    spilled: SegmentLookup

    @property
    def parts(self) -> list[Rows]:
        return [self.hot, self.spilled.rows]

    @property
    def numbers(self) -> np.ndarray:
        """Of the row that matches each."""
        return np.concatenate([self.hot_numbers, self.spilled.numbers])


def current(store: ReadModifyWriteStore, wanted: Rows, bounds: np.ndarray, *, keep: bool) -> Current:
    """Copies of the records with the key and pane of the rows. ``keep``: they may be looked up again."""
    hot, numbers = in_memory(store, wanted, bounds)
    # A record in a table is none that lives on disk.
    return Current(hot, numbers, store.spilled.lookup_all(wanted, bounds, store.horizon, keep=keep))


def in_memory(store: ReadModifyWriteStore, wanted: Rows, bounds: np.ndarray) -> tuple[Rows, np.ndarray]:
    """As ``current``, of the records in memory, and the number of the row that matches each.

    These are all, where ``store.load`` has loaded the others before.
    """
    parts: list[Rows] = []
    numbers = [np.empty(0, np.int64)]
    for _, table, low, high in _touched(store, bounds):
        at = table.locate(Rows(wanted.words[low:high], wanted.heap))
        there = at >= 0
        parts.append(table.copy(at[there]))
        numbers.append(low + np.flatnonzero(there))
    return concat_rows(parts, store.layout), np.concatenate(numbers)


def take(store: ReadModifyWriteStore, found: Current, chosen: np.ndarray) -> np.ndarray:
    """Of records that were found, none of them twice, the caller replaces the chosen ones, in the open epoch.

    It merges their new values as ``fresh``: what lies on disk of them is not read a second time. Gives the positions of
    the chosen records that the store will take for new ones.
    """
    first = len(found.hot)
    store.take_spilled(found.spilled, chosen[first:])
    return first + np.flatnonzero(chosen[first:])


def known(store: ReadModifyWriteStore, wanted: Rows, bounds: np.ndarray) -> np.ndarray:
    """Which of the rows have a record with their key and pane."""
    found = np.ones(len(wanted), bool)
    for _, table, low, high in _touched(store, bounds):
        found[table.missing(wanted.words, wanted.heap, low, high)] = False
    if store.spilled and not found.all():
        found[store.spilled.lookup_all(wanted, bounds, store.horizon, keep=True).numbers] = True
    return found


def outlasting(store: ReadModifyWriteStore, wanted: Rows, bounds: np.ndarray, word: int, after: int) -> np.ndarray:
    """Which of the rows have a record with their key, in whatever pane, whose ``word`` is beyond ``after``.

    Costs a lookup for each pane that has records: for stores with few panes.
    """
    found = np.zeros(len(wanted), bool)
    for shard, table, low, high in _touched(store, bounds):
        panes = np.ascontiguousarray(table.panes(_FOREVER)[:, 0])
        found[low:high] = table.outlasting(Rows(wanted.words[low:high], wanted.heap), panes, word, after)
        if store.spilled:
            _mark_spilled(store, shard, wanted, low + np.flatnonzero(~found[low:high]), word, after, found)
    return found


def _mark_spilled(
    store: ReadModifyWriteStore, shard: int, wanted: Rows, chosen: np.ndarray, word: int, after: int, found: np.ndarray
) -> None:
    own = wanted.words[chosen, PANE]
    left = chosen
    for pane in store.spilled.panes(shard, store.horizon, _FOREVER).tolist():
        wanted.words[left, PANE] = pane
        records, numbers = store.spilled.lookup(shard, wanted, left, store.horizon)
        found[numbers[records.words[:, word] > after]] = True
        left = left[~found[left]]
    wanted.words[chosen, PANE] = own


def _touched(store: ReadModifyWriteStore, bounds: np.ndarray) -> Iterator[tuple[int, Table, int, int]]:
    for shard, table in store.tables():
        low, high = int(bounds[shard]), int(bounds[shard + 1])
        if low < high:
            yield shard, table, low, high
