"""Between tables and sections: a table restored from sections, and records of tables copied out as sections.

Copies lie column by column, as Arrow wants them, shard after shard; a section is a slice of them without another copy.
Threads: free functions; ``copied`` works on several tables at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.state.hash_table.table import Table
from tailrace.state.layout import RecordLayout
from tailrace.state.part_pool import PartPool
from tailrace.state.rows.rows import Rows
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
    """A table holding the newest value of every record in the sections (oldest first) that has not expired."""
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
        table.expire(gone)
        table.forget()
    if removes:
        everyone = table.all_rows()
        table.begin(0)
        table.remove(everyone[table.tombstones(everyone)])
        table.forget()
    return table


Part = tuple[int, Table, np.ndarray]
"""Of a shard's table some row numbers."""


@dataclass(frozen=True)
class Copies:
    """Copied records, shard after shard: those of ``shards[i]`` are rows ``counts[i]`` to ``counts[i + 1]``."""

    shards: list[int]
    counts: np.ndarray
    rows: Rows


def copied(parts: Sequence[Part], layout: RecordLayout, pool: PartPool) -> Copies:
    """Of each part (shard, table, row numbers) the records."""
    counts = np.cumsum([0, *(len(rows) for _, _, rows in parts)])
    heaps = np.cumsum([0, *(table.heap_needed(rows) for _, table, rows in parts)])
    # Transposed, so that each word of all rows lies together.
    words = np.empty((layout.words, int(counts[-1])), np.int64)
    out = Rows(words.T, np.empty(int(heaps[-1]), np.uint8))

    def gather(number: int) -> None:
        _, table, rows = parts[number]
        table.gather(rows, out, int(counts[number]), int(heaps[number]))

    pool.each(gather, range(len(parts)), int(counts[-1]))
    return Copies([shard for shard, _, _ in parts], counts, out)


def by_shard(copies: Copies, layout: RecordLayout) -> dict[int, pa.RecordBatch]:
    """A section of each shard."""
    batch = sections.to_section(copies.rows, layout)
    edges = zip(copies.shards, copies.counts[:-1], copies.counts[1:], strict=True)
    return {shard: batch.slice(int(low), int(high - low)) for shard, low, high in edges}
