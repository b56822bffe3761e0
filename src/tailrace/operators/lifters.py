"""What turns a task's batches into an operator's frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from tailrace.operators.deduplicate_lift import DeduplicateLifter
from tailrace.operators.event_time import LiftCounts
from tailrace.operators.frame import Frame
from tailrace.operators.join_lift import JoinLifter
from tailrace.operators.lift import Lifter
from tailrace.operators.lookup_lift import LookupLifter
from tailrace.operators.process_lift import ProcessLifter
from tailrace.operators.row_lift import RowLifter
from tailrace.operators.specs.aggregate import AggregateSpec
from tailrace.operators.specs.deduplicate import DeduplicateSpec
from tailrace.operators.specs.join import JoinSpec
from tailrace.operators.specs.lookup import LookupSpec
from tailrace.operators.specs.operator import OperatorSpec
from tailrace.operators.specs.process import ProcessSpec
from tailrace.operators.specs.top_n import TopNSpec
from tailrace.operators.top_n_lift import TopNLifter
from tailrace.types import DataType


class AnyLifter(Protocol):
    counts: LiftCounts
    keep_arrivals: bool
    """Whether frames tell in which order their rows came: for who records accesses."""

    def frame(self, batches: Sequence[pa.RecordBatch]) -> Frame:
        """The rows of these batches that are not late, sorted by shard."""


def lifter_of(
    spec: OperatorSpec, late_before: int, combine: bool, input_types: Mapping[str, DataType], epoch: int | None = None
) -> AnyLifter:
    """``input_types``: of all that the operator reads. ``epoch``: for what is said of a user's function that fails."""
    match spec:
        case JoinSpec():
            return JoinLifter(spec, late_before)
        case LookupSpec():
            return LookupLifter(spec)
        case ProcessSpec():
            return ProcessLifter(spec, late_before)
        case DeduplicateSpec():
            return DeduplicateLifter(spec, late_before, combine)
        case TopNSpec():
            return TopNLifter(spec, late_before, combine)
        case AggregateSpec() if spec.keeps_rows:
            return RowLifter(spec, late_before, epoch)
        case AggregateSpec():
            return Lifter(spec, late_before, combine, input_types, epoch)
    raise AssertionError(f"no lifter for {spec!r}")
