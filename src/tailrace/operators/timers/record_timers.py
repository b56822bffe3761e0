"""Records of a read-modify-write store that wait for a time: their entries among the deadlines of one operator.

What an entry's time means, and when a record gets another one, is the subclass's. Entries are no state of their own: a
restore makes them from the records, an undo gives back those that were taken.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tailrace.operators.resources import Resources
from tailrace.operators.timers.deadlines import Deadlines, split_by_shard
from tailrace.state.metrics import Metrics
from tailrace.state.read_modify_write.store import ReadModifyWriteStore


class Waiting:
    def __init__(self, store: ReadModifyWriteStore, shard_count: int, resources: Resources) -> None:
        """``shard_count``: of the query, by which the shard of a hash is found."""
        self._store = store
        self._shard_count = shard_count
        self.deadlines = Deadlines(shard_count, resources.memory_bytes, resources.folder)
        self.looked = 0  # hashes that came up so far

    def _come_up(self, epoch: int, until: int) -> Iterator[tuple[int, np.ndarray]]:
        """(shard, hashes) of the entries at or before ``until``, which are taken."""
        for shard, hashes in split_by_shard(self.deadlines.take(epoch, until), self._shard_count):
            self.looked += len(hashes)
            yield shard, hashes

    # As a companion of its store, see ``store_operator``.

    @property
    def nbytes(self) -> int:
        return self.deadlines.nbytes

    @property
    def disk_bytes(self) -> int:
        return self.deadlines.disk_bytes

    def metrics(self) -> Metrics:
        return {}

    def undo(self, epoch: int) -> None:
        self.deadlines.undo(epoch)

    def forget(self, epoch: int) -> None:
        self.deadlines.forget(epoch)

    def drop_shard(self, shard: int) -> None:
        self.deadlines.drop_shard(shard)

    def close(self) -> None:
        self.deadlines.close()
