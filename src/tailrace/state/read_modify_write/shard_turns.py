"""A batch merged some shards at a time, where its records have to be read from disk.

For a row whose record is spilled, looking for it, reading it and putting it into a table takes some hundred bytes until
it is merged. So that this does not grow with the batch, shards take turns: a frame is sorted by shard, so a turn is a
part of it, without a copy. All rows of a key are in one turn, in their order.

Threads: pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tailrace.state.rows.rows import Rows

TURN_ROWS = 1 << 16
"""Of a turn, about at most, unless one shard has more."""

Frames = Sequence[tuple[Rows, np.ndarray]]
"""Rows sorted by shard, and ``bounds[shards + 1]``."""


def shard_turns(frames: Frames, rows_max: int | None = None) -> Iterator[Frames]:
    """The frames, cut between shards into turns of about so many rows together."""
    limit = TURN_ROWS if rows_max is None else rows_max
    if sum(len(rows) for rows, _ in frames) <= limit:
        yield frames
        return
    ends = np.sum([bounds for _, bounds in frames], axis=0)
    first = 0
    while first < len(ends) - 1:
        end = int(np.searchsorted(ends, ends[first] + limit, side="right")) - 1
        end = max(first + 1, end)
        yield [_part(rows, bounds, first, end) for rows, bounds in frames]
        first = end


def _part(rows: Rows, bounds: np.ndarray, first: int, end: int) -> tuple[Rows, np.ndarray]:
    low, high = int(bounds[first]), int(bounds[end])
    return Rows(rows.words[low:high], rows.heap), np.clip(bounds, low, high) - low
