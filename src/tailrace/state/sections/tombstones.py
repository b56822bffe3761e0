"""Sections of a store that removes single records: a tombstone, of which nothing is left but the key, for each of them.

Threads: free functions; ``delta_with_tombstones`` works on several tables at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.state.hash_table.table import Table
from tailrace.state.layout import VALID, RecordLayout
from tailrace.state.part_pool import PartPool
from tailrace.state.rows.rows import Rows
from tailrace.state.sections import sections
from tailrace.state.sections.tables import by_shard, copied


@dataclass(frozen=True)
class Touched:
    """Row numbers of a table's records that the newest epoch has touched.

    First the ``removed`` ones that it has removed: a record that is there again comes after its own tombstone.
    """

    shard: int
    table: Table
    rows: np.ndarray
    removed: int


def removed_and_left(shard: int, table: Table, horizon: int, *, made_too: bool) -> Touched:
    """Of records that have not expired. ``made_too``: those too that the newest epoch made before it removed them."""
    parts = table.removed_rows(made_too=made_too), table.changed_rows()
    removed, left = (part[table.pane_starts(part) >= horizon] for part in parts)
    return Touched(shard, table, np.concatenate([removed, left]), len(removed))


def delta_with_tombstones(
    touched: Sequence[Touched], spilled: tuple[Rows, np.ndarray], layout: RecordLayout, pool: PartPool
) -> dict[int, pa.RecordBatch]:
    """By shard, tombstones and then records. ``spilled``: records removed where they lie on disk, and their shards."""
    touched = [each for each in touched if len(each.rows)]
    copies = copied([(each.shard, each.table, each.rows) for each in touched], layout, pool)
    dead = [np.arange(len(each.rows)) < each.removed for each in touched]
    bury(copies.rows, np.concatenate([np.empty(0, bool), *dead]), layout)
    delta = by_shard(copies, layout)
    for shard, tombs in tombstones(*spilled, layout):
        delta[shard] = pa.concat_batches([tombs, *([delta[shard]] if shard in delta else [])])
    return delta


def bury(rows: Rows, chosen: np.ndarray, layout: RecordLayout) -> None:
    """Make tombstones of records, in place."""
    rows.words[chosen, VALID] &= layout.key_mask
    rows.words[chosen, layout.accumulators[0].word :] = 0


def tombstones(rows: Rows, shards: np.ndarray, layout: RecordLayout) -> Iterator[tuple[int, pa.RecordBatch]]:
    """By shard, a section of tombstones of these records, whose shards stand beside them."""
    order = np.argsort(shards, kind="stable")
    rows, shards = Rows(rows.words[order], rows.heap), shards[order]
    bury(rows, np.ones(len(rows), bool), layout)
    section = sections.to_section(rows, layout)
    for shard in np.unique(shards):
        low, high = np.searchsorted(shards, [shard, shard + 1])
        yield int(shard), section.slice(int(low), int(high - low))
