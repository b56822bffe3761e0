"""The memory budget of a store, and the eviction of records to disk when it is exceeded.

Invariants
- Tables, the index of spilled records, the write-back buffer and the cache take at most ``memory_bytes`` together, plus
  the records that undoable epochs have changed, which are never evicted. Where such records become evictable all at
  once, the write-back buffer holds them beyond the budget until the background thread has written it: they were in
  memory before, too. The memory for reading and compacting is a constant (see ``segment``, ``compaction``) on top.
- No table drops a record before it is in the buffer. A failure on the way leaves every record in exactly one place.

Threads: as the store, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tailrace.state.hash_table.table import Table
from tailrace.state.segments.spilled_records import SpilledRecords


class MemoryBudget:
    def __init__(self, memory_bytes: int, spilled: SpilledRecords) -> None:
        self._spilled, self._memory_bytes = spilled, memory_bytes

    def hold(self, tables: dict[int, Table], epoch: int, hint: Callable[[], None]) -> None:
        """Evict records where memory is beyond the budget. Row numbers change. ``epoch``: the newest.

        ``hint`` is called before the first eviction: it gives hints to the tables, so that hinted records stay.
        """
        # A quarter of this is evicted at once, into the buffer: both together take what the cache leaves.
        hot_bytes = (self._memory_bytes - self._spilled.reads.share_out(self._spilled.index_bytes)) * 4 // 5
        # A quarter at once, so that segments do not get small; everything evictable, where that is not enough.
        for target in (hot_bytes - hot_bytes // 4, 0):
            held = sum(table.nbytes for table in tables.values()) + self._spilled.index_bytes
            if held <= hot_bytes:
                return
            hint()
            if not self._evict(tables, held - target, epoch):
                return

    def _evict(self, tables: dict[int, Table], bytes_: int, epoch: int) -> bool:
        """Evict about so many bytes of records, in proportion from every table. Returns whether there are more."""
        hot = sum(table.nbytes for table in tables.values())
        going: list[tuple[int, Table, np.ndarray]] = []
        more = False
        for shard, table in sorted(tables.items()):
            wanted = -(-table.rows * bytes_ // hot)
            rows = table.eviction_candidates(wanted, epoch)
            more |= 0 < wanted <= len(rows)
            if len(rows):
                going.append((shard, table, rows))
        if not going:
            return False
        # No table drops a record until all of them are in the buffer.
        self._spilled.put(
            ((shard, table.copy(rows)) for shard, table, rows in going), sum(len(rows) for *_, rows in going)
        )
        for number, (_, table, rows) in enumerate(going):
            try:
                table.evict(rows)
            except BaseException:
                self._spilled.take_back([shard for shard, _, _ in going[number:]])
                raise
        self._spilled.write_buffer()
        return more
