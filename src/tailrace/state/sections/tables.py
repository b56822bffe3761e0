"""Tables made of sections, oldest first: to restore a shard.

Threads: pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tailrace.state.hash_table.table import Table
from tailrace.state.layout import RecordLayout
from tailrace.state.sections import sections


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
    batches = list(batches)
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
    if removes:
        everyone = table.all_rows()
        table.begin(0)
        table.remove(everyone[table.tombstones(everyone)])
        table.forget()
    return table
