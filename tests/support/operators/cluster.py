"""One operator on two servers, and the sections that the servers would have written.

Shards move, epochs are undone and repeated, and servers restart from sections, compacted or not, with little memory or
much. A subclass defines how rows reach the operator.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.operators.ingest.frame import Frame
from tailrace.operators.registry import compact_sections, operator_of
from tailrace.state.tuning import DEFAULT_TUNING, Tuning

SERVERS = 2


class Cluster:
    def __init__(self, spec: Any, rng: random.Random, folder: str, owner: list[int] | None = None) -> None:
        """``owner``: the server of each shard, where a test chooses it."""
        self.spec = spec
        self._rng = rng
        self._folder = folder
        self._owner = owner or [rng.randrange(SERVERS) for _ in range(spec.shards)]
        self.servers = [self._make([s for s, own in enumerate(self._owner) if own == i]) for i in range(SERVERS)]
        self._sections: dict[int, list[pa.RecordBatch]] = {shard: [] for shard in range(spec.shards)}
        self.late_rows = 0
        self.wrote_segments = False

    def _make(self, shards: list[int]) -> Any:
        memory_bytes = self._rng.choice([0, 6000, 10**8])
        return operator_of(self.spec, shards, memory_bytes=memory_bytes, folder=self._folder, tuning=self._tuning())

    def _tuning(self) -> Tuning:
        return DEFAULT_TUNING

    @property
    def rows(self) -> int:
        return sum(server.rows for server in self.servers)

    # One epoch -------------------------------------------------------------------------------------------------------

    def epoch(self, number: int, *given: Any) -> list[Any]:
        """Runs the epoch and writes its deltas as sections."""
        emitted = self.run(number, *given)
        for server in self.servers:
            for shard, batch in server.delta(number).items():
                assert shard in server.shards
                batch.validate(full=True)
                self._sections[shard].append(batch)
            self.wrote_segments |= server.disk_bytes > 0
        assert len({server.horizon for server in self.servers}) == 1
        return emitted

    def run(self, number: int, *given: Any) -> list[Any]:
        """Applies and advances the epoch; returns its output."""
        raise NotImplementedError

    def undo(self, number: int) -> None:
        for server in self.servers:
            server.undo(number)

    def forget(self, number: int) -> None:
        for server in self.servers:
            server.forget(number)

    def section_counts(self) -> dict[int, int]:
        return {shard: len(batches) for shard, batches in self._sections.items()}

    def take_back_sections(self, number_of_each: dict[int, int]) -> None:
        for shard, count in number_of_each.items():
            del self._sections[shard][count:]

    def _owned(self, frame: Frame, server: int) -> Frame:
        """The rows of the shards that a server owns."""
        own = np.array([owner == server for owner in self._owner])
        sizes = np.diff(frame.bounds)
        bounds = np.concatenate([[0], np.cumsum(np.where(own, sizes, 0))])
        return Frame(frame.rows[np.repeat(own, sizes)], frame.heap, bounds)

    # Shards ----------------------------------------------------------------------------------------------------------

    def move(self, shard: int) -> None:
        old = self._owner[shard]
        horizon = self.servers[old].horizon
        self.servers[old].drop_shard(shard)
        self._owner[shard] = 1 - old
        self.servers[1 - old].restore(shard, self._stored(shard, horizon), horizon)

    def restart(self, spec: Any = None) -> None:
        """Restarts every server from the written sections, with another spec where one is given."""
        self.spec = spec or self.spec
        horizon = max(server.horizon for server in self.servers)
        self.close()
        for i in range(SERVERS):
            self.servers[i] = self._make([])
            for shard, owner in enumerate(self._owner):
                if owner == i:
                    self.servers[i].restore(shard, self._stored(shard, horizon), horizon)
        for server in self.servers:  # a server without shards would learn the horizon only with its next epoch
            if not server.shards:
                server.restore(self.spec.shards - 1, [], horizon)
                server.drop_shard(self.spec.shards - 1)

    def _stored(self, shard: int, horizon: int) -> list[pa.RecordBatch]:
        batches = self._sections[shard]
        if len(batches) > 1 and self._rng.random() < 0.6:
            low = self._rng.randrange(len(batches))
            high = self._rng.randrange(low, len(batches)) + 1
            batches[low:high] = [compact_sections(self.spec, batches[low:high], horizon, complete=low == 0)]
        return list(batches)

    def close(self) -> None:
        for server in self.servers:
            server.close()
            assert server.disk_bytes == 0


def plain_rows(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Rows as tuples, with timestamps as numbers, since not all of them fit Python's."""
    number = pa.int64()
    arrays, fields = [], []
    for field, array in zip(batch.schema, batch.columns, strict=True):
        type_ = field.type
        if pa.types.is_struct(type_):
            type_ = pa.struct([(part.name, number) for part in type_])
        elif pa.types.is_timestamp(type_):
            type_ = number
        arrays.append(array.cast(type_))
        fields.append(pa.field(field.name, type_))
    plain = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    return [tuple(row.values()) for row in plain.to_pylist()]
