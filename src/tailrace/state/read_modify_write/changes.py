"""What the newest epoch of a read-modify-write store has changed: for the operator's output, and for the checkpoint.

Invariants
- A record that was loaded from disk counts as changed, as it lies in a table that has it anew.
- Copies are made once, since output and delta both need them, until the store changes (``forget_copies``).
- Beyond ``_GROUP_ROWS`` records are copied some shards at a time.

Threads: as the store, one at a time; inside, different shards are copied at once by the store's pool.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from tailrace.ids import MIN_MICROS
from tailrace.state.hash_table.table import Table
from tailrace.state.layout import PANE, RecordLayout
from tailrace.state.part_pool import PartPool
from tailrace.state.read_modify_write.epochs import UndoableEpochs
from tailrace.state.rows.rows import Rows
from tailrace.state.sections.sections import to_section
from tailrace.state.sections.tables import Copies, Part, by_shard, copied
from tailrace.state.sections.tombstones import delta_with_tombstones, removed_and_left
from tailrace.state.segments.spilled_records import SpilledRecords

_GROUP_ROWS = 1 << 19
"""Of changed records that are copied at once."""


class NewestChanges:
    def __init__(
        self,
        layout: RecordLayout,
        tables: Mapping[int, Table],
        epochs: UndoableEpochs,
        spilled: SpilledRecords,
        pool: PartPool,
    ) -> None:
        self._layout, self._tables, self._epochs = layout, tables, epochs
        self._spilled, self._pool = spilled, pool
        self._copies: Copies | None = None

    def forget_copies(self) -> None:
        """The store has changed."""
        self._copies = None

    def in_tables(self) -> list[Part]:
        """(shard, table, row numbers) of the changed records that are in memory, by shard."""
        touched = [(shard, table) for shard, table in sorted(self._tables.items()) if self._epochs.has_touched(table)]
        found = [(shard, table, table.changed_rows()) for shard, table in touched]
        return [part for part in found if len(part[2])]

    def copies(self) -> Copies:
        """A copy of every changed record that is in memory."""
        if self._copies is None:
            self._copies = copied(self.in_tables(), self._layout, self._pool)
        return self._copies

    def live_copies(self) -> Copies:
        """As ``copies``, of those that have not expired."""
        changed = self.copies()
        if len(changed.rows) and (changed.rows.words[:, PANE] < self._epochs.horizon).any():
            changed = copied(self._alive(), self._layout, self._pool)
        self._copies = None
        return changed

    def _alive(self) -> list[Part]:
        horizon = self._epochs.horizon
        alive = [(shard, table, rows[table.pane_starts(rows) >= horizon]) for shard, table, rows in self.in_tables()]
        return [part for part in alive if len(part[2])]

    def count(self) -> int:
        newest = self._epochs.newest
        return 0 if newest is None else self._count_in_tables() + self._spilled.changed_count(newest)

    def _count_in_tables(self) -> int:
        return sum(table.changed_count for table in self._epochs.touched)

    def pieces(self) -> Iterator[Rows]:
        """Copies of the changed records: those in memory, then those that are spilled already."""
        if self._count_in_tables() <= _GROUP_ROWS:
            yield self.copies().rows
        else:
            for group in _groups(self.in_tables()):
                yield copied(group, self._layout, self._pool).rows
        if self._epochs.newest is not None:
            for _, rows in self._spilled.changed(self._epochs.newest, MIN_MICROS):
                yield rows

    def sections(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Shards, each with a section of live changed records. A shard may come several times."""
        if self._epochs.newest is None:
            return
        if self._count_in_tables() <= _GROUP_ROWS:
            yield from by_shard(self.live_copies(), self._layout).items()
        else:
            for group in _groups(self._alive()):
                yield from by_shard(copied(group, self._layout, self._pool), self._layout).items()
        for shard, rows in self._spilled.changed(self._epochs.newest, self._epochs.horizon):
            yield shard, to_section(rows, self._layout)

    def sections_with_tombstones(self, *, made_too: bool) -> Iterator[tuple[int, pa.RecordBatch]]:
        """As ``sections``, of a store that removes single records: with a tombstone for each of those.

        ``made_too``: also for records that the epoch itself has made, or brought from disk.
        """
        if self._epochs.newest is None:
            return
        self._copies = None
        touched = [(shard, table) for shard, table in sorted(self._tables.items()) if self._epochs.has_touched(table)]
        parts = [removed_and_left(*each, self._epochs.horizon, made_too=made_too) for each in touched]
        removed = self._spilled.removed(self._epochs.newest)
        yield from delta_with_tombstones(parts, removed, self._layout, self._pool).items()


def _groups(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """The parts some at a time."""
    group: list[Part] = []
    for part in parts:
        if group and sum(len(rows) for _, _, rows in group) + len(part[2]) > _GROUP_ROWS:
            yield group
            group = []
        group.append(part)
    if group:
        yield group
