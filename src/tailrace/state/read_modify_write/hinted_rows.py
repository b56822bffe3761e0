"""Prefetch hints of a read-modify-write store that its tables do not know yet.

Tables need hints only to keep hinted records when others are evicted. So hints are held here until an eviction is due,
and are dropped when their epoch comes before that.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tailrace.state.hash_table.table import Table
from tailrace.state.layout import HASH, PANE, RecordLayout
from tailrace.state.rows.rows import Rows


class HintedRows:
    def __init__(self) -> None:
        self._hints: list[tuple[Rows, np.ndarray, int]] = []

    def add(self, rows: Rows, bounds: np.ndarray, epoch: int) -> None:
        """Rows sorted by shard, of a batch of this epoch."""
        self._hints.append((rows, bounds, epoch))

    def drop_until(self, epoch: int) -> None:
        self._hints = [each for each in self._hints if each[2] > epoch]

    def give_to(self, tables: Iterable[tuple[int, Table]]) -> None:
        tables = list(tables)
        for rows, bounds, epoch in self._hints:
            for shard, table in tables:
                lo, hi = int(bounds[shard]), int(bounds[shard + 1])
                if lo < hi:
                    table.hint(Rows(rows.words[lo:hi], rows.heap), epoch)
        self._hints.clear()


def rows_of_hashes(
    hashes: np.ndarray, panes: np.ndarray | None, layout: RecordLayout, shard_count: int
) -> tuple[Rows, np.ndarray]:
    """Rows with nothing but hashes and panes (None: records have none), sorted by shard, and ``bounds[shards + 1]``."""
    shards = hashes % shard_count
    order = np.argsort(shards, kind="stable")
    words = np.zeros((len(hashes), layout.words), np.int64)
    words[:, HASH] = hashes[order]
    if panes is not None:
        words[:, PANE] = panes[order]
    return Rows(words, np.empty(0, np.uint8)), np.searchsorted(shards[order], np.arange(shard_count + 1))
