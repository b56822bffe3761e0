"""An aggregation on a state server: which operator runs it, by its store and its windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from tailrace.operators.aggregate.holistic.aligned_windows import WindowRows
from tailrace.operators.aggregate.holistic.sliding_windows import SlidingLists
from tailrace.operators.aggregate.holistic.unaligned_windows import WindowLists
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.aggregate.state_view import VIEW
from tailrace.operators.aggregate.ttl_aggregate import TtlAggregate
from tailrace.operators.aggregate.warm_up import warm_up_aggregate
from tailrace.operators.aggregate.window_aggregate import WindowAggregate
from tailrace.operators.base import Operator
from tailrace.operators.count_window import runtime as count_runtime
from tailrace.operators.kind import OperatorRuntime
from tailrace.operators.pattern import Pattern
from tailrace.operators.resources import Resources
from tailrace.operators.session import runtime as session_runtime
from tailrace.operators.state_view import StateView
from tailrace.operators.windows.window_kind import WindowKind
from tailrace.state.append import aligned, unaligned
from tailrace.state.sections import compaction

_OF_THEIR_OWN = {WindowKind.SESSION: session_runtime.RUNTIME, WindowKind.COUNT: count_runtime.RUNTIME}
"""Windows that end key by key have operators of their own."""


def _operator(spec: AggregateSpec, shards: Iterable[int], given: Resources) -> Operator:
    if spec.window_kind in _OF_THEIR_OWN:
        return _OF_THEIR_OWN[spec.window_kind].operator(spec, shards, given)
    match spec.pattern:
        case Pattern.RMW:
            return (WindowAggregate if spec.ttl is None else TtlAggregate)(spec, shards, given)
        case Pattern.AAR:
            return WindowRows(spec, shards, given)
        case Pattern.AUR:
            return (SlidingLists if spec.window_kind is WindowKind.SLIDING else WindowLists)(spec, shards, given)


def compact_sections(
    spec: AggregateSpec, batches: Sequence[pa.RecordBatch], horizon: int, *, complete: bool
) -> pa.RecordBatch:
    if spec.window_kind in _OF_THEIR_OWN:
        return _OF_THEIR_OWN[spec.window_kind].compact_sections(spec, batches, horizon, complete=complete)
    match spec.pattern:
        case Pattern.RMW:
            bury = complete and spec.ttl is not None
            return compaction.compact_records(spec.record_layout(), batches, horizon, bury=bury)
        case Pattern.AAR:
            return aligned.compact_sections(spec.layout(), batches, horizon)
        case Pattern.AUR:
            return unaligned.compact_sections(spec.layout(), batches, horizon, complete=complete)


def _warm_up() -> None:
    warm_up_aggregate()
    for runtime in _OF_THEIR_OWN.values():
        runtime.warm_up()


def _view(spec: AggregateSpec) -> StateView[AggregateSpec]:
    """Windows that end key by key are shown by their own packages."""
    own = _OF_THEIR_OWN.get(spec.window_kind)
    view = VIEW if own is None else own.view
    assert view is not None
    return view


def _rows(spec: AggregateSpec, section: pa.RecordBatch, horizon: int, *, records: bool) -> Iterator[pa.RecordBatch]:
    return _view(spec).rows(spec, section, horizon, records=records)


def _identity(spec: AggregateSpec, records: bool) -> int:
    return _view(spec).identity(spec, records)


RUNTIME = OperatorRuntime(_operator, compact_sections, StateView(_rows, _identity), _warm_up)
