"""What both append stores are to an operator: raw rows, appended by epochs, undone, expired, checkpointed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Protocol

import numpy as np
import pyarrow as pa

from tailrace.state.rows.rows import Rows


class RowStore(Protocol):
    """Rows of one (key, pane) come back in the order in which they were appended: by epoch, then as in the frames.

    Threads: one at a time.
    """

    horizon: int
    """No row of an earlier pane is seen again."""

    @property
    def shards(self) -> frozenset[int]: ...

    @property
    def rows(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """Bytes of memory: at most the budget, and the rows of the epochs that can be undone."""
        ...

    @property
    def disk_bytes(self) -> int: ...

    @property
    def newest_epoch(self) -> int | None: ...

    def append(self, epoch: int, frames: Sequence[tuple[Rows, np.ndarray]]) -> None:
        """Open ``epoch`` and append rows sorted by shard: pairs of rows and ``bounds[shards + 1]``."""
        ...

    def open_epoch(self, epoch: int) -> None:
        """Open it without rows: several stores of one operator move together."""
        ...

    def expire(self, horizon: int) -> None:
        """Drop every row of a pane that starts before ``horizon``, as part of the open epoch."""
        ...

    def undo(self, epoch: int) -> None:
        """Back to before ``epoch`` was opened; nothing happens where it was not."""
        ...

    def forget(self, epoch: int) -> None:
        """Epochs up to ``epoch`` will never be undone."""
        ...

    def delta(self) -> dict[int, pa.RecordBatch]:
        """By shard, what carries a restored copy from the epoch before to the newest one, given the horizon."""
        ...

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        """Build a shard from its sections, oldest first."""
        ...

    def drop_shard(self, shard: int) -> None:
        """Its rows are gone, for good and in every epoch."""
        ...

    def close(self) -> None:
        """Nothing is left, in memory or on disk."""
        ...


def check_owned(frames: Sequence[tuple[Rows, np.ndarray]], shards: Set[int], shard_count: int) -> None:
    """Refuse rows that some other server keeps: they would be lost with this one."""
    for rows, bounds in frames:
        if len(bounds) != shard_count + 1:
            raise ValueError(f"a frame has bounds of {len(bounds) - 1} shards, the store has {shard_count}")
        sizes = np.diff(bounds)
        if int(sizes[sorted(shards)].sum()) != len(rows):
            raise ValueError("frames hold rows of shards that are not kept here")
