"""Two servers' worth of an operator over keys, and the sections they would have written.

Rows come as dictionaries and go through the tasks' own lifting; shards move, epochs are undone and redone, servers
restart with other memory. ``times``: what an epoch is told beside its watermark, for operators that go by it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.operators.catalogue import fold_sections, operator_of
from tailrace.operators.frame import Frame
from tailrace.operators.lifters import lifter_of
from tailrace.operators.output import output_schema
from tailrace.state.columns import arrow_type
from tailrace.state.tuning import ColdTuning, Tuning
from tailrace.types import Field

SERVERS = 2
NO_TIME = -(2**63)


@dataclass(frozen=True)
class Times:
    """What an epoch goes by."""

    late_before: int = NO_TIME
    watermark: int = NO_TIME
    now: int = 0
    forget_before: int = NO_TIME


class KeyedCluster:
    def __init__(self, spec: Any, columns: tuple[Field, ...], rng: random.Random, folder: str) -> None:
        self.spec = spec
        self._columns = columns
        self._rng = rng
        self._folder = folder
        self._owner = [rng.randrange(SERVERS) for _ in range(spec.shards)]
        self.servers = [self._make([s for s, own in enumerate(self._owner) if own == i]) for i in range(SERVERS)]
        self._sections: dict[int, list[pa.RecordBatch]] = {shard: [] for shard in range(spec.shards)}
        self.wrote_segments = False
        self.late_rows = 0

    def _make(self, shards: list[int]) -> Any:
        memory_bytes = self._rng.choice([0, 6000, 10**8])
        # With async-io rows that need nothing from disk are applied before the others.
        tuning = Tuning(cold=ColdTuning(prefetch=self._rng.choice(["on", "async-io"])))
        return operator_of(self.spec, shards, memory_bytes=memory_bytes, folder=self._folder, tuning=tuning)

    @property
    def rows(self) -> int:
        return sum(server.rows for server in self.servers)

    # One epoch -------------------------------------------------------------------------------------------------------

    def epoch(self, number: int, rows: list[dict[str, Any]], times: Times) -> list[tuple[Any, ...]]:
        emitted = self.run(number, rows, times)
        for server in self.servers:
            for shard, batch in server.delta(number).items():
                assert shard in server.shards
                self._sections[shard].append(batch)
            self.wrote_segments |= server.disk_bytes > 0
        return emitted

    def run(self, number: int, rows: list[dict[str, Any]], times: Times) -> list[tuple[Any, ...]]:
        cut = self._rng.randrange(len(rows) + 1)
        tasks = [self._lifted(part, times.late_before) for part in (rows[:cut], rows[cut:])]
        emitted: list[tuple[Any, ...]] = []
        schema = output_schema(self.spec)
        for i, server in enumerate(self.servers):
            if hasattr(server, "set_times"):
                server.set_times(times.now, times.forget_before)
            server.apply(number, [self._owned(frame, i) for frame in tasks])
            server.updated(number)
            for batch in server.advance(number, times.late_before, times.watermark):
                assert batch.schema == schema and len(batch)
                batch.validate(full=True)
                emitted += [tuple(row.values()) for row in _plain(batch).to_pylist()]
        return emitted

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

    # Shards ----------------------------------------------------------------------------------------------------------

    def move(self, shard: int) -> None:
        old = self._owner[shard]
        self.servers[old].drop_shard(shard)
        self._owner[shard] = 1 - old
        self.servers[1 - old].restore(shard, self._stored(shard), self.servers[old].horizon)

    def restart(self) -> None:
        """Every server anew, from what was written."""
        for i, server in enumerate(self.servers):
            server.close()
            self.servers[i] = self._make([])
            for shard, owner in enumerate(self._owner):
                if owner == i:
                    self.servers[i].restore(shard, self._stored(shard), server.horizon)

    def _stored(self, shard: int) -> list[pa.RecordBatch]:
        batches = self._sections[shard]
        if len(batches) > 1 and self._rng.random() < 0.6:
            low = self._rng.randrange(len(batches))
            high = self._rng.randrange(low, len(batches)) + 1
            batches[low:high] = [fold_sections(self.spec, batches[low:high], NO_TIME, complete=low == 0)]
        return list(batches)

    def close(self) -> None:
        for server in self.servers:
            server.close()
            assert server.disk_bytes == 0

    # Rows ------------------------------------------------------------------------------------------------------------

    def _lifted(self, rows: list[dict[str, Any]], late_before: int) -> Frame:
        arrays = {f.name: pa.array([row[f.name] for row in rows], arrow_type(f.type)) for f in self._columns}
        types = {field.name: field.type for field in self._columns}
        lifter = lifter_of(self.spec, late_before, self._rng.random() < 0.5, types)
        frame = lifter.frame([pa.RecordBatch.from_pydict(arrays)])
        self.late_rows += lifter.counts.late_rows
        return Frame.from_batch(frame.to_batch(), self.spec.layout().words)

    def _owned(self, frame: Frame, server: int) -> Frame:
        own = np.array([owner == server for owner in self._owner])
        sizes = np.where(own, np.diff(frame.bounds), 0)
        chosen = np.repeat(own, np.diff(frame.bounds))
        return Frame(frame.rows[chosen], frame.heap, np.concatenate([[0], np.cumsum(sizes)]))


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Timestamps as numbers, since not all of them fit Python's."""
    arrays = [a.cast(pa.int64()) if pa.types.is_timestamp(a.type) else a for a in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
