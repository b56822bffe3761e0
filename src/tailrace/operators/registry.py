"""Which operator runs a description, and how its sections fold. The only place that knows all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from tailrace.operators.aggregate.registry import aggregate_operator, compact_aggregate
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.base import Operator
from tailrace.operators.dedup.operator import Deduplicate
from tailrace.operators.dedup.spec import DeduplicateSpec
from tailrace.operators.join import sections as join_sections
from tailrace.operators.join.interval_join import JoinRows
from tailrace.operators.join.spec import JoinKind, JoinSpec
from tailrace.operators.join.window_join import WindowJoin
from tailrace.operators.lookup.registry import lookup_operator
from tailrace.operators.lookup.spec import LookupSpec
from tailrace.operators.process.operator import Process
from tailrace.operators.process.spec import ProcessSpec
from tailrace.operators.spec import OperatorSpec
from tailrace.operators.top_n import sections as top_n_sections
from tailrace.operators.top_n.operator import TopN
from tailrace.operators.top_n.spec import TopNSpec
from tailrace.operators.top_n.ttl_operator import TtlTopN
from tailrace.state.append import aligned as append_aligned
from tailrace.state.sections import compaction as section_compaction
from tailrace.state.tuning import DEFAULT_TUNING, Tuning


def operator_of(
    spec: OperatorSpec, shards: Iterable[int], *, memory_bytes: int, folder: str, tuning: Tuning = DEFAULT_TUNING
) -> Operator:
    """``memory_bytes``: its share of the budget; what goes beyond it lies in files in ``folder``."""
    match spec:
        case JoinSpec(kind=JoinKind.WINDOW):
            return WindowJoin(spec, shards, memory_bytes=memory_bytes, folder=folder)
        case JoinSpec():
            return JoinRows(spec, shards, memory_bytes=memory_bytes, folder=folder, tuning=tuning)
        case LookupSpec():
            return lookup_operator(spec, shards, memory_bytes=memory_bytes, folder=folder, tuning=tuning)
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


def compact_sections(
    spec: OperatorSpec, batches: Sequence[pa.RecordBatch], horizon: int, *, complete: bool
) -> pa.RecordBatch:
    """One section that stands for several, oldest first. ``complete``: there are none before them."""
    match spec:
        case JoinSpec(kind=JoinKind.WINDOW):
            return append_aligned.compact_sections(spec.kept_layout(), batches, horizon)
        case JoinSpec():
            return join_sections.compact(spec.kept_layout(), batches, horizon)
        case ProcessSpec():
            return section_compaction.compact_records(spec.kept_layout(), batches, horizon, bury=complete)
        case DeduplicateSpec():
            return section_compaction.compact_records(spec.kept_layout(), batches, horizon)
        case TopNSpec():
            return top_n_sections.compact_sections(spec, batches, horizon, complete=complete)
        case AggregateSpec():
            return compact_aggregate(spec, batches, horizon, complete=complete)
    raise AssertionError(f"no sections of {spec!r}")
