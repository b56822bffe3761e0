"""Which operator runs an aggregation, by its store and its windows, and how its sections fold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from tailrace.operators import count_sections
from tailrace.operators.count_aggregate import CountAggregate
from tailrace.operators.count_panes import CountPanes
from tailrace.operators.count_rows import CountRows
from tailrace.operators.operator import Operator
from tailrace.operators.session_aggregate import SessionAggregate
from tailrace.operators.session_rows import SessionRows
from tailrace.operators.sliding_lists import SlidingLists
from tailrace.operators.specs.aggregate import AggregateSpec
from tailrace.operators.specs.pattern import Pattern, WindowKind
from tailrace.operators.ttl_aggregate import TtlAggregate
from tailrace.operators.window_aggregate import WindowAggregate
from tailrace.operators.window_lists import WindowLists
from tailrace.operators.window_rows import WindowRows
from tailrace.state import append_aligned, append_unaligned, section_folds
from tailrace.state.tuning import Tuning


def aggregate_operator(
    spec: AggregateSpec, shards: Iterable[int], *, memory_bytes: int, folder: str, tuning: Tuning
) -> Operator:
    match spec.pattern, spec.window_kind:
        case Pattern.RMW, WindowKind.SESSION:
            return SessionAggregate(spec, shards, memory_bytes=memory_bytes, folder=folder, tuning=tuning)
        case Pattern.RMW, WindowKind.COUNT if spec.count_slide is not None:
            return CountPanes(spec, shards, memory_bytes=memory_bytes, folder=folder, tuning=tuning)
        case Pattern.RMW, WindowKind.COUNT:
            return CountAggregate(spec, shards, memory_bytes=memory_bytes, folder=folder, tuning=tuning)
        case Pattern.RMW, WindowKind.GLOBAL if spec.ttl is not None:
            return TtlAggregate(spec, shards, memory_bytes=memory_bytes, folder=folder, tuning=tuning)
        case Pattern.RMW, _:
            return WindowAggregate(spec, shards, memory_bytes=memory_bytes, folder=folder, tuning=tuning)
        case Pattern.AAR, _:
            return WindowRows(spec, shards, memory_bytes=memory_bytes, folder=folder)
        case Pattern.AUR, WindowKind.SESSION:
            return SessionRows(spec, shards, memory_bytes=memory_bytes, folder=folder, tuning=tuning)
        case Pattern.AUR, WindowKind.COUNT:
            return CountRows(spec, shards, memory_bytes=memory_bytes, folder=folder, tuning=tuning)
        case Pattern.AUR, WindowKind.SLIDING:
            return SlidingLists(spec, shards, memory_bytes=memory_bytes, folder=folder, tuning=tuning)
        case Pattern.AUR, _:
            return WindowLists(spec, shards, memory_bytes=memory_bytes, folder=folder, tuning=tuning)
    raise AssertionError(f"no operator for {spec!r}")


def fold_aggregate(
    spec: AggregateSpec, batches: Sequence[pa.RecordBatch], horizon: int, *, complete: bool
) -> pa.RecordBatch:
    match spec.pattern, spec.window_kind:
        case Pattern.RMW, kind:
            bury = complete and (kind is WindowKind.SESSION or spec.ttl is not None)
            return section_folds.fold_records(spec.record_layout(), batches, horizon, bury=bury)
        case Pattern.AAR, _:
            return append_aligned.fold_sections(spec.layout(), batches, horizon)
        case Pattern.AUR, WindowKind.COUNT:
            return count_sections.fold(spec, batches, horizon, complete=complete)
        case Pattern.AUR, _:
            return append_unaligned.fold_sections(spec.layout(), batches, horizon, complete=complete)
    raise AssertionError(f"no sections of {spec!r}")
