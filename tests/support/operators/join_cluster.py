"""A cluster of a join: rows of both sides in order of arrival, with hashes that a test may choose."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from support.models.join import Answer, JoinRow
from support.operators.cluster import Cluster, plain_rows
from tailrace.operators.ingest.frame import Frame, by_shard
from tailrace.operators.join.spec import LEFT, JoinSpec
from tailrace.operators.output import output_schema
from tailrace.state.sections import sections


class JoinCluster(Cluster):
    """``pool``: how many different hashes there are. ``hashes``, ``owner``: where a test chooses them."""

    def __init__(
        self,
        spec: JoinSpec,
        rng: random.Random,
        folder: str,
        pool: int,
        hashes: dict[tuple[Any, ...], int] | None = None,
        owner: list[int] | None = None,
    ) -> None:
        self._pool = [rng.getrandbits(63) - 2**62 for _ in range(pool)]
        self._hashes = hashes or {}
        super().__init__(spec, rng, folder, owner)

    def hash_of(self, key: tuple[Any, ...]) -> int:
        return self._hashes.setdefault(key, self._rng.choice(self._pool))

    def run(self, number: int, *given: Any) -> list[Any]:
        rows: list[JoinRow]
        rows, late_before, watermark = given
        emitted: list[Any] = []
        schema = output_schema(self.spec)
        for i, server in enumerate(self.servers):
            own = [row for row in rows if self._owner[self.hash_of(row.key) % self.spec.shards] == i]
            cut = self._rng.randrange(len(own) + 1)
            server.apply(number, [self._frame(part) for part in (own[:cut], own[cut:])])
            for batch in server.advance(number, late_before, watermark):
                assert batch.schema == schema and 0 < len(batch) <= 1 << 16
                batch.validate(full=True)
                emitted += map(repr, plain_rows(batch))
            assert server.updated(number) <= len(rows)
        return emitted

    def close(self) -> None:
        super().close()
        for server in self.servers:
            assert server.rows == server.nbytes == 0

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
        cells += answer.cells(spec)
        if spec.time_name is not None:
            cells.append(answer.time)
        shown.append(repr(tuple(cells)))
    return shown
