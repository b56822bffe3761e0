"""A cluster whose rows are dictionaries and pass through the tasks' ingest; epochs have times of both clocks."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from support.operators.cluster import Cluster, plain_rows
from tailrace.operators.ingest.frame import Frame
from tailrace.operators.output import output_schema
from tailrace.operators.registry import ingest_of
from tailrace.state.rows.columns import arrow_type
from tailrace.state.tuning import SpillTuning, Tuning
from tailrace.types import Field

NO_TIME = -(2**63)


@dataclass(frozen=True)
class Times:
    """The times of one epoch."""

    late_before: int = NO_TIME
    watermark: int = NO_TIME
    now: int = 0
    forget_before: int = NO_TIME


class KeyedCluster(Cluster):
    def __init__(self, spec: Any, columns: tuple[Field, ...], rng: random.Random, folder: str) -> None:
        self._columns = columns
        super().__init__(spec, rng, folder)

    def _tuning(self) -> Tuning:
        # With async-io rows that need nothing from disk are applied before the others.
        return Tuning(spilled=SpillTuning(prefetch=self._rng.choice(["on", "async-io"])))

    def run(self, number: int, *given: Any) -> list[Any]:
        rows: list[dict[str, Any]]
        times: Times
        rows, times = given
        cut = self._rng.randrange(len(rows) + 1)
        tasks = [self._ingested(part, times.late_before) for part in (rows[:cut], rows[cut:])]
        emitted: list[Any] = []
        schema = output_schema(self.spec)
        for i, server in enumerate(self.servers):
            if hasattr(server, "set_times"):
                server.set_times(times.now, times.forget_before)
            server.apply(number, [self._owned(frame, i) for frame in tasks])
            server.updated(number)
            for batch in server.advance(number, times.late_before, times.watermark):
                assert batch.schema == schema and len(batch)
                batch.validate(full=True)
                emitted += plain_rows(batch)
        return emitted

    def _ingested(self, rows: list[dict[str, Any]], late_before: int) -> Frame:
        arrays = {f.name: pa.array([row[f.name] for row in rows], arrow_type(f.type)) for f in self._columns}
        types = {field.name: field.type for field in self._columns}
        ingest = ingest_of(self.spec, late_before, self._rng.random() < 0.5, types)
        frame = ingest.frame([pa.RecordBatch.from_pydict(arrays)])
        self.late_rows += ingest.counts.late_rows
        return Frame.from_batch(frame.to_batch(), self.spec.layout().words)
