"""Two servers' worth of a join, and the sections they would have written: shards move, epochs are undone and redone."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from support.join_oracle import Answer, JoinRow
from tailrace.operators.catalogue import fold_sections, operator_of
from tailrace.operators.frame import Frame, by_shard
from tailrace.operators.output import output_schema
from tailrace.operators.specs.join import LEFT, JoinSpec
from tailrace.state import columns, sections
from tailrace.types import TIMESTAMP

SERVERS = 2


class JoinCluster:
    """``pool``: how many hashes there are; ``hashes`` and ``owner`` where a test chooses those of keys and shards."""

    def __init__(
        self,
        spec: JoinSpec,
        rng: random.Random,
        folder: str,
        pool: int,
        hashes: dict[tuple[Any, ...], int] | None = None,
        owner: list[int] | None = None,
    ) -> None:
        self.spec = spec
        self._rng = rng
        self._folder = folder
        self._pool = [rng.getrandbits(63) - 2**62 for _ in range(pool)]
        self._hashes = hashes or {}
        self._owner = owner or [rng.randrange(SERVERS) for _ in range(spec.shards)]
        self.servers = [self._make([s for s, own in enumerate(self._owner) if own == i]) for i in range(SERVERS)]
        self._sections: dict[int, list[pa.RecordBatch]] = {shard: [] for shard in range(spec.shards)}
        self.wrote_segments = False

    def _make(self, shards: list[int]) -> Any:
        memory_bytes = self._rng.choice([0, 6000, 10**8])
        return operator_of(self.spec, shards, memory_bytes=memory_bytes, folder=self._folder)

    def hash_of(self, key: tuple[Any, ...]) -> int:
        return self._hashes.setdefault(key, self._rng.choice(self._pool))

    # One epoch -------------------------------------------------------------------------------------------------------

    def epoch(self, number: int, rows: list[JoinRow], late_before: int, watermark: int) -> list[str]:
        emitted = self.run(number, rows, late_before, watermark)
        for server in self.servers:
            assert server.updated(number) <= len(rows)
            for shard, batch in server.delta(number).items():
                assert shard in server.shards
                self._sections[shard].append(batch)
            self.wrote_segments |= server.disk_bytes > 0
        assert len({server.horizon for server in self.servers}) == 1
        return emitted

    def run(self, number: int, rows: list[JoinRow], late_before: int, watermark: int) -> list[str]:
        emitted: list[str] = []
        schema = output_schema(self.spec)
        for i, server in enumerate(self.servers):
            own = [row for row in rows if self._owner[self.hash_of(row.key) % self.spec.shards] == i]
            cut = self._rng.randrange(len(own) + 1)
            server.apply(number, [self._frame(part) for part in (own[:cut], own[cut:])])
            for batch in server.advance(number, late_before, watermark):
                assert batch.schema == schema and 0 < len(batch) <= 1 << 16
                batch.validate(full=True)
                emitted += [repr(tuple(row.values())) for row in _plain(batch).to_pylist()]
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

    # Shards ----------------------------------------------------------------------------------------------------------

    def move(self, shard: int) -> None:
        old = self._owner[shard]
        horizon = self.servers[old].horizon
        self.servers[old].drop_shard(shard)
        self._owner[shard] = 1 - old
        self.servers[1 - old].restore(shard, self._stored(shard, horizon), horizon)

    def restart(self) -> None:
        """Every server anew, from what was written."""
        horizon = max(server.horizon for server in self.servers)
        for i, server in enumerate(self.servers):
            server.close()
            assert server.rows == server.nbytes == server.disk_bytes == 0
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

    def _frame(self, rows: list[JoinRow]) -> Frame:
        spec, layout = self.spec, self.spec.layout()
        found: list[list[Any]] = [[self.hash_of(row.key) for row in rows], [0] * len(rows)]
        found += [[row.key[i] for row in rows] for i in range(len(spec.keys))]
        found += [[row.side != LEFT for row in rows], [row.time for row in rows]]
        for side in (0, 1):
            for i in range(len(spec.columns(side))):
                found.append([row.values[i] if row.side == side else None for row in rows])
        schema = sections.section_schema(layout)
        arrays = [pa.array(column, field.type) for column, field in zip(found, schema, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return Frame.from_batch(by_shard(sections.from_section(batch, layout), spec.shards).to_batch(), layout.words)


def expected(spec: JoinSpec, answers: list[Answer]) -> list[str]:
    """Answers as the cluster shows them: times as microseconds."""
    shown = []
    for answer in answers:
        cells: list[Any] = []
        if spec.window is not None:
            cells.append({"start": answer.window, "end": answer.window + spec.window.size})
        cells += [*answer.left.key, *answer.left.values]
        cells += answer.right.values if answer.right else [None] * len(spec.right)
        if spec.time_name is not None:
            cells.append(answer.time)
        shown.append(repr(tuple(cells)))
    return shown


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Timestamps as numbers, since not all of them fit Python's."""
    stamp, number = columns.arrow_type(TIMESTAMP), pa.int64()
    arrays, fields = [], []
    for field, array in zip(batch.schema, batch.columns):
        type_ = field.type
        if pa.types.is_struct(type_):
            type_ = pa.struct([(part.name, number) for part in type_])
        elif type_ == stamp:
            type_ = number
        arrays.append(array.cast(type_))
        fields.append(pa.field(field.name, type_))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
