"""Kernels of the sort by shard. A shard is the hash modulo their number, never negative."""

from __future__ import annotations

import numpy as np

from tailrace.env.kernels.compile import kernel


@kernel
def shards_of(rows, shards, out, bounds):
    """Of each row its shard; and where each shard's rows begin and end, once they are sorted."""
    mask = shards - 1 if shards & (shards - 1) == 0 else np.int64(-1)
    for i in range(rows.shape[0]):
        shard = rows[i, 0] & mask if mask >= 0 else rows[i, 0] % shards
        out[i] = shard
        bounds[shard + 1] += 1
    for s in range(shards):
        bounds[s + 1] += bounds[s]


@kernel
def scatter_rows(rows, shard_of, places, out):
    """Rows to their shards' places: read in one stream and written in as many as there are shards. Stable."""
    words = rows.shape[1]
    for i in range(rows.shape[0]):
        place = places[shard_of[i]]
        places[shard_of[i]] = place + 1
        for w in range(words):
            out[place, w] = rows[i, w]


@kernel
def scatter_numbers(shard_of, places, out):
    """As ``scatter_rows``, of the rows' own numbers."""
    for i in range(shard_of.shape[0]):
        place = places[shard_of[i]]
        places[shard_of[i]] = place + 1
        out[place] = i
