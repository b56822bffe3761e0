"""Two servers' worth of an operator that is sent rows, and the sections they would have written.

Rows, tuples of Python values by ``types``, go through the task side, in partitions, combined or not; shards move,
epochs are undone and redone, servers start anew from sections that were folded or not, with little memory or much.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.operators.catalogue import fold_sections, operator_of
from tailrace.operators.frame import Frame, by_shard
from tailrace.operators.lifters import lifter_of
from tailrace.operators.output import output_schema
from tailrace.operators.specs.from_json import spec_from_json
from tailrace.state.columns import arrow_type
from tailrace.state.layout import HASH
from tailrace.state.table import Rows
from tailrace.types import DataType

SERVERS = 2


class RowCluster:
    """``pool``: how many hashes there are, so that keys collide; None: their own."""

    def __init__(
        self, spec: Any, types: dict[str, DataType], rng: random.Random, folder: str, pool: int | None = None
    ) -> None:
        assert spec_from_json(spec.to_json()) == spec
        self.spec = spec
        self._types = types
        self._rng = rng
        self._folder = folder
        self._pool = None if pool is None else np.array([rng.getrandbits(63) - 2**62 for _ in range(pool)], np.int64)
        self._owner = [rng.randrange(SERVERS) for _ in range(spec.shards)]
        self.servers = [self._make([s for s, own in enumerate(self._owner) if own == i]) for i in range(SERVERS)]
        self._sections: dict[int, list[pa.RecordBatch]] = {shard: [] for shard in range(spec.shards)}
        self.late_rows = 0
        self.disk_bytes_max = 0

    def _make(self, shards: list[int]) -> Any:
        memory_bytes = self._rng.choice([0, 6000, 10**8])
        return operator_of(self.spec, shards, memory_bytes=memory_bytes, folder=self._folder)

    # One epoch -------------------------------------------------------------------------------------------------------

    def epoch(self, number: int, partitions: list[list[Any]], late_before: int, watermark: int) -> list[Any]:
        emitted = self.run(number, partitions, late_before, watermark)
        for server in self.servers:
            for shard, batch in server.delta(number).items():
                assert shard in server.shards
                batch.validate(full=True)
                self._sections[shard].append(batch)
            self.disk_bytes_max = max(self.disk_bytes_max, server.disk_bytes)
        assert len({server.horizon for server in self.servers}) == 1
        return emitted

    def run(self, number: int, partitions: list[list[Any]], late_before: int, watermark: int) -> list[Any]:
        """Returns rows as tuples, times as microseconds."""
        frames = [frame for rows in partitions for frame in self._frames(rows, late_before)]
        emitted: list[Any] = []
        schema = output_schema(self.spec)
        for i, server in enumerate(self.servers):
            sent = [self._part(frame, i) for frame in frames]
            sums = [frame.checksum() for frame in sent]
            server.apply(number, sent)
            assert sums == [frame.checksum() for frame in sent], "a frame was written to"
            assert server.updated(number) >= 0
            for batch in server.advance(number, late_before, watermark):
                assert batch.schema == schema and 0 < len(batch) <= 1 << 16
                batch.validate(full=True)
                emitted += [tuple(row.values()) for row in _plain(batch).to_pylist()]
        return emitted

    def undo(self, number: int) -> None:
        for server in self.servers:
            server.undo(number)

    def forget(self, number: int) -> None:
        for server in self.servers:
            server.forget(number)

    def take_back_sections(self, number_of_each: dict[int, int]) -> None:
        for shard, count in number_of_each.items():
            del self._sections[shard][count:]

    def section_counts(self) -> dict[int, int]:
        return {shard: len(batches) for shard, batches in self._sections.items()}

    @property
    def rows(self) -> int:
        return sum(server.rows for server in self.servers)

    # Shards ----------------------------------------------------------------------------------------------------------

    def move(self, shard: int) -> None:
        old = self._owner[shard]
        horizon = self.servers[old].horizon
        self.servers[old].drop_shard(shard)
        self._owner[shard] = 1 - old
        self.servers[1 - old].restore(shard, self._stored(shard, horizon), horizon)

    def restart(self, spec: Any = None) -> None:
        """Every server anew, from what was written; with another description where it may change."""
        self.spec = spec or self.spec
        horizon = max(server.horizon for server in self.servers)
        for i, server in enumerate(self.servers):
            server.close()
            assert server.disk_bytes == 0
            self.servers[i] = self._make([])
            for shard, owner in enumerate(self._owner):
                if owner == i:
                    self.servers[i].restore(shard, self._stored(shard, horizon), horizon)
        for server in self.servers:  # one without shards learns of the horizon with its next epoch
            if not server.shards:
                server.restore(self.spec.shards - 1, [], horizon)
                server.drop_shard(self.spec.shards - 1)

    def _stored(self, shard: int, horizon: int) -> list[pa.RecordBatch]:
        batches = self._sections[shard]
        if len(batches) > 1 and self._rng.random() < 0.6:
            low = self._rng.randrange(len(batches))
            high = self._rng.randrange(low, len(batches)) + 1
            batches[low:high] = [fold_sections(self.spec, batches[low:high], horizon, complete=low == 0)]
        return list(batches)

    def close(self) -> None:
        for server in self.servers:
            server.close()

    # Rows ------------------------------------------------------------------------------------------------------------

    def _frames(self, rows: list[Any], late_before: int) -> list[Frame]:
        """What one task sends: its rows in one chunk or two."""
        lifter = lifter_of(self.spec, late_before, self._rng.random() < 0.5, self._types)
        cut = self._rng.randrange(len(rows) + 1)
        frames = [lifter.frame([self._batch(part)]) for part in (rows[:cut], rows[cut:]) if part]
        self.late_rows += lifter.counts.late_rows
        return [self._collided(frame) for frame in frames]

    def _batch(self, rows: list[Any]) -> pa.RecordBatch:
        fields = [pa.field(name, arrow_type(type_)) for name, type_ in self._types.items()]
        arrays = [pa.array(column, field.type) for column, field in zip(zip(*rows), fields, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _collided(self, frame: Frame) -> Frame:
        layout, words = self.spec.layout(), frame.rows.copy()
        if self._pool is not None:
            words[:, HASH] = self._pool[words[:, HASH] % len(self._pool)]
        again = by_shard(Rows(words, frame.heap), self.spec.shards)
        return Frame.from_batch(again.to_batch(), layout.words)  # as it comes off the wire: not to be written to

    def _part(self, frame: Frame, server: int) -> Frame:
        """The rows of the shards that a server owns."""
        own = np.array([owner == server for owner in self._owner])
        sizes = np.diff(frame.bounds)
        bounds = np.concatenate([[0], np.cumsum(np.where(own, sizes, 0))])
        return Frame(frame.rows[np.repeat(own, sizes)], frame.heap, bounds)


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Timestamps as numbers, since not all of them fit Python's."""
    number = pa.int64()
    arrays, fields = [], []
    for field, array in zip(batch.schema, batch.columns):
        type_ = field.type
        if pa.types.is_struct(type_):
            type_ = pa.struct([(part.name, number) for part in type_])
        elif pa.types.is_timestamp(type_):
            type_ = number
        arrays.append(array.cast(type_))
        fields.append(pa.field(field.name, type_))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
