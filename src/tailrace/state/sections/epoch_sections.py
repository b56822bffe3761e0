"""The delta of an epoch while it waits to be saved: sections by shard, in memory and on disk.

It takes no memory beyond the server's transit memory: what finds no room there
lies on the scratch disk until it is written to the checkpoint, shard by shard.

Threads: one makes it; any may read, one at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from tailrace.env.files.scratch import SpilledBatches
from tailrace.env.transit_memory import TransitMemory

_log = logging.getLogger(__name__)


class EpochSections(Mapping[int, pa.RecordBatch]):
    def __init__(
        self,
        parts: Iterable[tuple[int, pa.RecordBatch]],
        transit: TransitMemory | None = None,
        folder: str | None = None,
    ) -> None:
        """``parts``: of shards in any order, which may come several times. ``transit``: None: all stays in memory."""
        self._transit, self._folder = transit, folder
        self._parts: dict[int, list[pa.RecordBatch | int]] = {}  # a number: of a batch that is spilled
        self._spill: SpilledBatches | None = None
        self._spilled = self._held_bytes = 0
        self.rows = self.nbytes = 0
        try:
            for shard, batch in parts:
                size = batch.nbytes
                self.rows += batch.num_rows
                self.nbytes += size
                self._parts.setdefault(shard, []).append(self._kept(batch, size))
        except BaseException:
            self.release()
            raise

    def _kept(self, batch: pa.RecordBatch, size: int) -> pa.RecordBatch | int:
        if self._transit is None:
            return batch
        if self._transit.take(size):
            self._held_bytes += size
            return batch
        try:
            if self._spill is None:
                self._spill = SpilledBatches(self._folder, batch.schema)
            self._spill.write(batch)
        except OSError as error:
            _log.warning("a delta stays in memory, since it could not be written to %s: %s", self._folder, error)
            return batch
        self._spilled += 1
        return self._spilled - 1

    def release(self) -> None:
        """It counts no longer."""
        if self._transit is not None:
            self._transit.give_back(self._held_bytes)
        self._held_bytes = 0

    def __getitem__(self, shard: int) -> pa.RecordBatch:
        batches = [self._read(part) for part in self._parts[shard]]
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)

    def _read(self, part: pa.RecordBatch | int) -> pa.RecordBatch:
        if not isinstance(part, int):
            return part
        assert self._spill is not None
        return self._spill.batch(part)

    def __iter__(self) -> Iterator[int]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)
