"""A cluster whose rows are tuples of Python values; tasks ingest them in partitions, with or without combining."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa

from support.operators.cluster import Cluster, plain_rows
from tailrace.operators.ingest.frame import Frame, by_shard
from tailrace.operators.output import output_schema
from tailrace.operators.registry import ingest_of, spec_from_json
from tailrace.state.layout import HASH
from tailrace.state.rows.columns import arrow_type
from tailrace.state.rows.rows import Rows
from tailrace.state.tuning import SpillTuning, Tuning
from tailrace.types import DataType


class RowCluster(Cluster):
    """``pool``: how many different hashes there are, so that keys collide; None: the real hashes."""

    def __init__(
        self, spec: Any, types: dict[str, DataType], rng: random.Random, folder: str, pool: int | None = None
    ) -> None:
        assert spec_from_json(spec.to_json()) == spec
        self._types = types
        self._pool = None if pool is None else np.array([rng.getrandbits(63) - 2**62 for _ in range(pool)], np.int64)
        super().__init__(spec, rng, folder)

    def _tuning(self) -> Tuning:
        return Tuning(spilled=SpillTuning(prefetch=self._rng.choice(["on", "async-io"])))

    def run(self, number: int, *given: Any) -> list[Any]:
        partitions, late_before, watermark = given
        frames = [frame for rows in partitions for frame in self._frames(rows, late_before)]
        emitted: list[Any] = []
        schema = output_schema(self.spec)
        for i, server in enumerate(self.servers):
            sent = [self._owned(frame, i) for frame in frames]
            sums = [frame.checksum() for frame in sent]
            server.apply(number, sent)
            assert sums == [frame.checksum() for frame in sent], "a frame was written to"
            assert server.updated(number) >= 0
            for batch in server.advance(number, late_before, watermark):
                assert batch.schema == schema and 0 < len(batch) <= 1 << 16
                batch.validate(full=True)
                emitted += plain_rows(batch)
        return emitted

    def _frames(self, rows: list[Any], late_before: int) -> list[Frame]:
        """The frames of one task: its rows in one chunk or two."""
        ingest = ingest_of(self.spec, late_before, self._rng.random() < 0.5, self._types)
        cut = self._rng.randrange(len(rows) + 1)
        frames = [ingest.frame([self._batch(part)]) for part in (rows[:cut], rows[cut:]) if part]
        self.late_rows += ingest.counts.late_rows
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
