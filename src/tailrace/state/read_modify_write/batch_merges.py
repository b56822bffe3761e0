"""Batch merges of a store: values of ``Merge.BATCH`` are merged once for all shards (see ``hash_table.batch_merge``).

A call for each shard's table would cost more than the merging does.

Threads: a pure function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tailrace.state.hash_table.batch_merge import copied_rows, merge_states
from tailrace.state.hash_table.table import Table, key_numbers
from tailrace.state.layout import RecordLayout
from tailrace.state.rows.rows import Rows, concat_rows


def with_states_merged(
    frames: Sequence[tuple[Rows, np.ndarray]], tables: Mapping[int, Table], shard_count: int, layout: RecordLayout
) -> tuple[Rows, np.ndarray]:
    """The partials of all frames as one, with the values of batch merges merged, those of the tables' records included.

    Frames are rows sorted by shard, and ``bounds[shards + 1]``; so is the result.
    """
    parts = [copied_rows(rows.words, rows.heap, np.arange(len(rows)), layout) for rows, _ in frames]
    shards = np.concatenate([np.repeat(np.arange(len(bounds) - 1), np.diff(bounds)) for _, bounds in frames])
    order = np.argsort(shards, kind="stable")
    together = concat_rows(parts, layout)
    rows, shards = Rows(np.ascontiguousarray(together.words[order]), together.heap), shards[order]
    numbers, firsts = key_numbers(rows, layout)
    held, owners = [], [np.empty(0, np.int64)]
    edges = np.searchsorted(shards[firsts], np.arange(shard_count + 1))
    for shard in np.unique(shards):
        lo, hi = int(edges[shard]), int(edges[shard + 1])
        table = tables[int(shard)]
        at = table.locate(Rows(np.ascontiguousarray(rows.words[firsts[lo:hi]]), rows.heap))
        known = np.flatnonzero(at >= 0)
        if len(known):
            held.append(table.copy(at[known]))
            owners.append(lo + known)
    records = concat_rows(held, layout)
    bounds = np.searchsorted(shards, np.arange(shard_count + 1))
    return merge_states(rows, numbers, records, np.concatenate(owners), layout), bounds
