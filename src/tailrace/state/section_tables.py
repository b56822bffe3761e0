"""Tables made of sections, oldest first: to restore a shard, and to fold several sections into one.

Threads: pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from tailrace.state import sections
from tailrace.state.layout import RecordLayout
from tailrace.state.table import Table


def fill_table(
    layout: RecordLayout,
    shard: int,
    batches: Iterable[pa.RecordBatch],
    horizon: int,
    *,
    removes: bool = False,
    policy: str = "timestamp",
) -> Table:
    """A table holding the newest value of every record in the sections (oldest first) that the horizon leaves."""
    table = _newest(layout, shard, list(batches), horizon, policy)
    if removes:
        rows = table.all_rows()
        table.begin(0)
        table.remove(rows[table.tombstones(rows)])
        table.forget()
    return table


def fold_sections(
    layout: RecordLayout, batches: Sequence[pa.RecordBatch], horizon: int, *, bury: bool = False
) -> pa.RecordBatch:
    """One section that stands for several (oldest first): the newest value of each record that the horizon leaves.

    Tombstones stay, as records without a value: an older section may hold what they take away. With ``bury`` none is
    older, and they go.
    """
    table = _newest(layout, 0, batches, horizon)
    rows = table.all_rows()
    if bury:
        rows = rows[~table.tombstones(rows)]
    return sections.to_section(table.copy(rows), layout)


def _newest(
    layout: RecordLayout, shard: int, batches: Sequence[pa.RecordBatch], horizon: int, policy: str = "timestamp"
) -> Table:
    """Of every record, tombstones included, the newest."""
    expected = max((len(batch) for batch in batches), default=0)
    table = Table(layout, stagger=shard, rows_expected=expected, policy=policy)
    for batch in batches:
        rows = sections.from_section(batch, layout)
        table.begin(len(rows))
        table.merge(rows.words, rows.heap, 0, len(rows), replace=True)
        table.forget()
    gone = table.panes(horizon)
    if len(gone):
        table.begin(0)
        table.evict(gone)
        table.forget()
    return table
