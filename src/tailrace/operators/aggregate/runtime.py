"""An aggregation on a state server: which operator runs it, by its store and its windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from tailrace.operators.aggregate.holistic.aligned_windows import WindowRows
from tailrace.operators.aggregate.holistic.sliding_windows import SlidingLists
from tailrace.operators.aggregate.holistic.unaligned_windows import WindowLists
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.aggregate.ttl_aggregate import TtlAggregate
from tailrace.operators.aggregate.warm_up import warm_up_aggregate
from tailrace.operators.aggregate.window_aggregate import WindowAggregate
from tailrace.operators.base import Operator
from tailrace.operators.count_window import sections as count_sections
from tailrace.operators.count_window.holistic import CountRows
from tailrace.operators.count_window.sliding import CountPanes
from tailrace.operators.count_window.tumbling import CountAggregate
from tailrace.operators.kind import OperatorRuntime
from tailrace.operators.pattern import Pattern
from tailrace.operators.resources import Resources
from tailrace.operators.session.aggregate import SessionAggregate
from tailrace.operators.session.holistic import SessionRows
from tailrace.operators.windows.window_kind import WindowKind
from tailrace.state.append import aligned as append_aligned
from tailrace.state.append import unaligned as append_unaligned
from tailrace.state.sections import compaction as section_compaction


def _operator(spec: AggregateSpec, shards: Iterable[int], given: Resources) -> Operator:
    match spec.pattern, spec.window_kind:
        case Pattern.RMW, WindowKind.SESSION:
            return SessionAggregate(spec, shards, given)
        case Pattern.RMW, WindowKind.COUNT if spec.count_window is not None and spec.count_window.overlapping:
            return CountPanes(spec, shards, given)
        case Pattern.RMW, WindowKind.COUNT:
            return CountAggregate(spec, shards, given)
        case Pattern.RMW, WindowKind.GLOBAL if spec.ttl is not None:
            return TtlAggregate(spec, shards, given)
        case Pattern.RMW, _:
            return WindowAggregate(spec, shards, given)
        case Pattern.AAR, _:
            return WindowRows(spec, shards, given)
        case Pattern.AUR, WindowKind.SESSION:
            return SessionRows(spec, shards, given)
        case Pattern.AUR, WindowKind.COUNT:
            return CountRows(spec, shards, given)
        case Pattern.AUR, WindowKind.SLIDING:
            return SlidingLists(spec, shards, given)
        case Pattern.AUR, _:
            return WindowLists(spec, shards, given)
    raise AssertionError(f"no operator for {spec!r}")


def compact_sections(
    spec: AggregateSpec, batches: Sequence[pa.RecordBatch], horizon: int, *, complete: bool
) -> pa.RecordBatch:
    match spec.pattern, spec.window_kind:
        case Pattern.RMW, kind:
            bury = complete and (kind is WindowKind.SESSION or spec.ttl is not None)
            return section_compaction.compact_records(spec.record_layout(), batches, horizon, bury=bury)
        case Pattern.AAR, _:
            return append_aligned.compact_sections(spec.layout(), batches, horizon)
        case Pattern.AUR, WindowKind.COUNT:
            return count_sections.compact(spec, batches, horizon, complete=complete)
        case Pattern.AUR, _:
            return append_unaligned.compact_sections(spec.layout(), batches, horizon, complete=complete)
    raise AssertionError(f"no sections of {spec!r}")


RUNTIME = OperatorRuntime(_operator, compact_sections, warm_up_aggregate)
