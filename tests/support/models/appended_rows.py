"""What an append store should hold, as a dict of lists: slow, plain, and independent of every run and segment."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from support.stores.raw_rows import Row

FIRST = -(2**63)


class RowModel:
    def __init__(self, shards: Iterable[int], shard_count: int, undo_epochs: int) -> None:
        self.shards = set(shards)
        self.shard_count = shard_count
        self.undo_epochs = undo_epochs
        self.lists: dict[tuple[int, int, str], list[Row]] = {}
        self.horizon = FIRST
        self.epochs: list[tuple[int, dict[tuple[int, int, str], list[Row]], int]] = []  # lists and horizon before

    def shard(self, row: Row) -> int:
        return row.hash % self.shard_count

    def open(self, epoch: int, rows: list[Row]) -> None:
        self.epochs.append((epoch, copy.deepcopy(self.lists), self.horizon))
        self.epochs = self.epochs[-self.undo_epochs :]
        for row in rows:
            self.lists.setdefault(row.list_key, []).append(row)
        self._clean()

    def expire(self, horizon: int) -> None:
        self.horizon = max(self.horizon, horizon)
        self._clean()

    def remove(self, keys: Iterable[tuple[int, int, str]]) -> None:
        for key in keys:
            self.lists.pop(key, None)

    def _clean(self) -> None:
        self.lists = {key: rows for key, rows in self.lists.items() if key[0] >= self.horizon}

    def undo(self, epoch: int) -> None:
        while self.epochs and self.epochs[-1][0] >= epoch:
            _, self.lists, self.horizon = self.epochs.pop()
        self._clean()

    def forget(self, epoch: int) -> None:
        self.epochs = [entry for entry in self.epochs if entry[0] > epoch]

    def drop_shard(self, shard: int) -> None:
        self.shards.discard(shard)
        self.lists = self._without(self.lists, shard)
        self.epochs = [(epoch, self._without(lists, shard), horizon) for epoch, lists, horizon in self.epochs]

    def _without(self, lists: dict, shard: int) -> dict:  # type: ignore[type-arg]
        return {key: rows for key, rows in lists.items() if key[1] % self.shard_count != shard}

    def restored(self, shard: int, rows: Iterable[Row]) -> None:
        """A shard comes back with these rows, in this and in every earlier epoch."""
        self.shards.add(shard)
        fresh: dict[tuple[int, int, str], list[Row]] = {}
        for row in rows:
            fresh.setdefault(row.list_key, []).append(row)
        self.lists.update(copy.deepcopy(fresh))
        for _, lists, _ in self.epochs:
            lists.update(copy.deepcopy(fresh))
        self._clean()

    @property
    def rows(self) -> int:
        return sum(len(rows) for rows in self.lists.values())
