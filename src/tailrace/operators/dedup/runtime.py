"""Dropping duplicates on a state server."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tailrace.ids import MIN_MICROS, Micros
from tailrace.operators.dedup.ingest import DedupIngest
from tailrace.operators.dedup.operator import Deduplicate
from tailrace.operators.dedup.spec import DeduplicateSpec
from tailrace.operators.kind import OperatorRuntime
from tailrace.operators.rows.keyed_warm_up import KEY, TIME, run_epochs
from tailrace.state.sections import compaction


def _compact(
    spec: DeduplicateSpec, batches: Sequence[pa.RecordBatch], horizon: int, *, complete: bool
) -> pa.RecordBatch:
    return compaction.compact_records(spec.kept_layout(), batches, horizon)


def _warm_up() -> None:
    spec = DeduplicateSpec(
        name="warm-up",
        keys=(KEY,),
        columns=(KEY, TIME),
        time_column=TIME,
        watermarked=True,
        within=True,
        delay=Micros(10),
        handed_over=False,
        shards=1,
    )
    run_epochs(Deduplicate, spec, DedupIngest(spec, MIN_MICROS, combine=True))


RUNTIME = OperatorRuntime(Deduplicate, _compact, _warm_up)
