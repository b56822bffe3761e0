"""Sessions on a state server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.base import Operator
from tailrace.operators.kind import OperatorRuntime
from tailrace.operators.pattern import Pattern
from tailrace.operators.resources import Resources
from tailrace.operators.session.aggregate import DynamicSessionAggregate, SessionAggregate
from tailrace.operators.session.holistic import SessionRows
from tailrace.operators.session.state_view import VIEW
from tailrace.state.append import unaligned
from tailrace.state.sections import compaction


def _operator(spec: AggregateSpec, shards: Iterable[int], given: Resources) -> Operator:
    if spec.pattern is Pattern.RMW:
        made = SessionAggregate if spec.dynamic_session is None else DynamicSessionAggregate
        return made(spec, shards, given)
    return SessionRows(spec, shards, given)


def _compact(spec: AggregateSpec, batches: Sequence[pa.RecordBatch], horizon: int, *, complete: bool) -> pa.RecordBatch:
    if spec.pattern is Pattern.RMW:
        return compaction.compact_records(spec.record_layout(), batches, horizon, bury=complete)
    return unaligned.compact_sections(spec.layout(), batches, horizon, complete=complete)


RUNTIME = OperatorRuntime(_operator, _compact, VIEW)
