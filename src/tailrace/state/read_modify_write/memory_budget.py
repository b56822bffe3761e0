"""The memory budget of a store, and the eviction of records to disk when it is exceeded.

Invariants
- Tables, their undo logs, the index of spilled records, the write-back buffer and the cache take at most
  ``memory_bytes`` together, plus the records of one turn of a merge (``shard_turns``). Where records become evictable
  all at once, the write-back buffer holds them beyond the budget until the background thread has written it: they were
  in memory before, too. The memory for reading and compacting is a constant (see ``segment``, ``compaction``) on top.
- Records that no undoable epoch has changed go first. Where ``changes`` is set, those that such an epoch has made, or
  brought from disk, go next, to segments of that epoch. What stays is what such epochs have changed in memory: an undo
  log has it as it was before. That is in the budget as long as it is less than a third of it; and what was in memory
  before the epoch was within the budget.
- No table drops a record before it is in the buffer. A failure on the way leaves every record in exactly one place.

Threads: as the store, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tailrace.state.hash_table.table import Table
from tailrace.state.segments.spilled_records import SpilledRecords

Undoable = Sequence[tuple[int, Sequence[Table]]]
"""Epochs, ascending, each with the tables that have a log of it."""

_Going = list[tuple[int, Table, np.ndarray]]


class MemoryBudget:
    def __init__(self, memory_bytes: int, spilled: SpilledRecords, *, changes: bool = False) -> None:
        """``changes``: records that an undoable epoch has made may be evicted, too."""
        self._spilled, self._memory_bytes, self._changes = spilled, memory_bytes, changes

    @property
    def _hot_bytes(self) -> int:
        # A quarter of this is evicted at once, into the buffer: both together take what the cache leaves.
        return (self._memory_bytes - self._spilled.reads.share_out(self._spilled.index_bytes)) * 4 // 5

    def _held(self, tables: dict[int, Table]) -> int:
        return sum(table.nbytes for table in tables.values()) + self._spilled.index_bytes

    def is_near(self, tables: dict[int, Table], more_bytes: int) -> bool:
        """Whether so much more would exceed the budget."""
        return self._held(tables) + more_bytes > self._hot_bytes

    def hold(self, tables: dict[int, Table], epoch: int, hint: Callable[[], None], undoable: Undoable = ()) -> None:
        """Evict records where memory is beyond the budget. Row numbers change. ``epoch``: the newest.

        ``hint`` is called before the first eviction: it gives hints to the tables, so that hinted records stay.
        """
        hot_bytes = self._hot_bytes
        # A quarter at once, so that segments do not get small; everything evictable, where that is not enough.
        for target in (hot_bytes - hot_bytes // 4, 0):
            held = self._held(tables)
            if held <= hot_bytes:
                return
            hint()
            if not self._evict_unchanged(tables, held - target, epoch):
                break
        for changed_in, going in self._made(tables, undoable) if self._changes else ():
            if self._held(tables) <= hot_bytes:
                return
            self._evict(going, changed_in)

    def _evict_unchanged(self, tables: dict[int, Table], bytes_: int, epoch: int) -> bool:
        """Evict about so many bytes of records, in proportion from every table. Returns whether there are more."""
        hot = sum(table.nbytes for table in tables.values())
        going: _Going = []
        more = False
        for shard, table in sorted(tables.items()):
            wanted = -(-table.rows * bytes_ // hot)
            rows = table.eviction_candidates(wanted, epoch)
            more |= 0 < wanted <= len(rows)
            if len(rows):
                going.append((shard, table, rows))
        if not going:
            return False
        self._evict(going)
        return more

    def _made(self, tables: dict[int, Table], undoable: Undoable) -> Iterator[tuple[int, _Going]]:
        """By undoable epoch, oldest first: the records that it has made."""
        logs = dict.fromkeys(map(id, tables.values()), 0)  # by table, how many logs are older than the epoch's
        for epoch, logged in undoable:
            mine = set(map(id, logged))
            own = [(shard, table) for shard, table in sorted(tables.items()) if id(table) in mine]
            going = [(shard, table, table.made_by(logs[id(table)])) for shard, table in own]
            going = [each for each in going if len(each[2])]
            if going:
                yield epoch, going
            for _, table in own:
                logs[id(table)] += 1

    def _evict(self, going: _Going, epoch: int | None = None) -> None:
        """``epoch``: the undoable one that has made them."""
        # No table drops a record until all of them are in the buffer.
        self._spilled.put(
            ((shard, table.copy(rows)) for shard, table, rows in going), sum(len(rows) for *_, rows in going), epoch
        )
        for number, (_, table, rows) in enumerate(going):
            try:
                table.evict(rows)
            except BaseException:
                self._spilled.take_back([shard for shard, _, _ in going[number:]])
                raise
        self._spilled.write_buffer()
