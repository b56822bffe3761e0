"""Which operator runs a description, and how its sections fold. The only place that knows all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from tailrace.operators import join_sections, top_n_sections
from tailrace.operators.aggregate_catalogue import aggregate_operator, fold_aggregate
from tailrace.operators.deduplicate import Deduplicate
from tailrace.operators.join_rows import JoinRows
from tailrace.operators.lookup_catalogue import lookup_operator
from tailrace.operators.operator import Operator
from tailrace.operators.process import Process
from tailrace.operators.specs.aggregate import AggregateSpec
from tailrace.operators.specs.deduplicate import DeduplicateSpec
from tailrace.operators.specs.join import JoinKind, JoinSpec
from tailrace.operators.specs.lookup import LookupSpec
from tailrace.operators.specs.operator import OperatorSpec
from tailrace.operators.specs.process import ProcessSpec
from tailrace.operators.specs.top_n import TopNSpec
from tailrace.operators.top_n import TopN
from tailrace.operators.ttl_top_n import TtlTopN
from tailrace.operators.window_join import WindowJoin
from tailrace.state import append_aligned, section_folds
from tailrace.state.tuning import USUAL, Tuning


def operator_of(
    spec: OperatorSpec, shards: Iterable[int], *, memory_bytes: int, folder: str, tuning: Tuning = USUAL
) -> Operator:
    """``memory_bytes``: its share of the budget; what goes beyond it lies in files in ``folder``."""
    match spec:
        case JoinSpec(kind=JoinKind.WINDOW):
            return WindowJoin(spec, shards, memory_bytes=memory_bytes, folder=folder)
        case JoinSpec():
            return JoinRows(spec, shards, memory_bytes=memory_bytes, folder=folder, tuning=tuning)
        case LookupSpec():
            return lookup_operator(spec, shards, memory_bytes=memory_bytes, folder=folder, tuning=tuning.cold)
        case ProcessSpec():
            return Process(spec, shards, memory_bytes=memory_bytes, folder=folder, tuning=tuning)
        case DeduplicateSpec():
            return Deduplicate(spec, shards, memory_bytes=memory_bytes, folder=folder, tuning=tuning)
        case TopNSpec() if spec.ttl is not None:
            return TtlTopN(spec, shards, memory_bytes=memory_bytes, folder=folder, tuning=tuning)
        case TopNSpec():
            return TopN(spec, shards, memory_bytes=memory_bytes, folder=folder, tuning=tuning)
        case AggregateSpec():
            return aggregate_operator(spec, shards, memory_bytes=memory_bytes, folder=folder, tuning=tuning)
    raise AssertionError(f"no operator for {spec!r}")


def fold_sections(
    spec: OperatorSpec, batches: Sequence[pa.RecordBatch], horizon: int, *, complete: bool
) -> pa.RecordBatch:
    """One section that stands for several, oldest first. ``complete``: there are none before them."""
    match spec:
        case JoinSpec(kind=JoinKind.WINDOW):
            return append_aligned.fold_sections(spec.kept_layout(), batches, horizon)
        case JoinSpec():
            return join_sections.fold(spec.kept_layout(), batches, horizon)
        case ProcessSpec():
            return section_folds.fold_records(spec.kept_layout(), batches, horizon, bury=complete)
        case DeduplicateSpec():
            return section_folds.fold_records(spec.kept_layout(), batches, horizon)
        case TopNSpec():
            return top_n_sections.fold_sections(spec, batches, horizon, complete=complete)
        case AggregateSpec():
            return fold_aggregate(spec, batches, horizon, complete=complete)
    raise AssertionError(f"no sections of {spec!r}")
