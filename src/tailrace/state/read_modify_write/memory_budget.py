"""What the tables of a store may take in memory, and which records leave for the disk when they take more.

Invariants
- Tables, the index of cold records, the buffer of what leaves and what was read ahead hold ``memory_bytes`` together,
  plus what epochs that can be undone have changed: no such record leaves. What reading and rewriting take besides is
  a constant (see ``cold_segment``, ``cold_rewrite``) and not reckoned here.
- Nobody lets go of a record before it is in the buffer. What fails on the way leaves every record in one place.

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
        """Write records to disk where memory is beyond the budget. Row numbers change. ``epoch``: the newest.

        ``foretell`` is called before any leave: tables may know by then which will be used.
        """
        # Of this a quarter leaves at once, into the buffer: both together are what copies leave.
        hot_bytes = (self._memory_bytes - self._spilled.reads.share_out(self._spilled.index_bytes)) * 4 // 5
        # A quarter at once, so that segments do not get small; all that may go, where that is not enough.
        for target in (hot_bytes - hot_bytes // 4, 0):
            held = sum(table.nbytes for table in tables.values()) + self._spilled.index_bytes
            if held <= hot_bytes:
                return
            hint()
            if not self._shed(tables, held - target, epoch):
                return

    def _shed(self, tables: dict[int, Table], bytes_: int, epoch: int) -> bool:
        """Write about so many bytes of records to disk, in proportion from every table, and let go of them.

        Whether more could go.
        """
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
        # Nobody lets go of anything until all of it is written.
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
