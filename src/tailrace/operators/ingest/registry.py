"""What turns a task's batches into an operator's frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.dedup.ingest import DedupIngest
from tailrace.operators.dedup.spec import DeduplicateSpec
from tailrace.operators.ingest.event_time import IngestCounts
from tailrace.operators.ingest.frame import Frame
from tailrace.operators.ingest.partials import PartialIngest
from tailrace.operators.ingest.rows import RowIngest
from tailrace.operators.join.ingest import JoinIngest
from tailrace.operators.join.spec import JoinSpec
from tailrace.operators.lookup.ingest import LookupIngest
from tailrace.operators.lookup.spec import LookupSpec
from tailrace.operators.process.ingest import ProcessIngest
from tailrace.operators.process.spec import ProcessSpec
from tailrace.operators.spec import OperatorSpec
from tailrace.operators.top_n.ingest import TopNIngest
from tailrace.operators.top_n.spec import TopNSpec
from tailrace.types import DataType


class Ingest(Protocol):
    counts: IngestCounts
    keep_arrivals: bool
    """Whether frames tell in which order their rows came: for who records accesses."""

    def frame(self, batches: Sequence[pa.RecordBatch]) -> Frame:
        """The rows of these batches that are not late, sorted by shard."""


def ingest_of(
    spec: OperatorSpec, late_before: int, combine: bool, input_types: Mapping[str, DataType], epoch: int | None = None
) -> Ingest:
    """``input_types``: of all that the operator reads. ``epoch``: for what is said of a user's function that fails."""
    match spec:
        case JoinSpec():
            return JoinIngest(spec, late_before)
        case LookupSpec():
            return LookupIngest(spec)
        case ProcessSpec():
            return ProcessIngest(spec, late_before)
        case DeduplicateSpec():
            return DedupIngest(spec, late_before, combine)
        case TopNSpec():
            return TopNIngest(spec, late_before, combine)
        case AggregateSpec() if spec.keeps_rows:
            return RowIngest(spec, late_before, epoch)
        case AggregateSpec():
            return PartialIngest(spec, late_before, combine, input_types, epoch)
    raise AssertionError(f"no lifter for {spec!r}")
