"""Windows by count on a state server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.base import Operator
from tailrace.operators.count_window import sections
from tailrace.operators.count_window.holistic import CountRows
from tailrace.operators.count_window.sliding import CountPanes
from tailrace.operators.count_window.state_view import VIEW
from tailrace.operators.count_window.tumbling import CountAggregate
from tailrace.operators.count_window.warm_up import warm_up_count
from tailrace.operators.kind import OperatorRuntime
from tailrace.operators.pattern import Pattern
from tailrace.operators.resources import Resources
from tailrace.state.sections import compaction


def _operator(spec: AggregateSpec, shards: Iterable[int], given: Resources) -> Operator:
    assert spec.count_window is not None
    if spec.pattern is not Pattern.RMW:
        return CountRows(spec, shards, given)
    return (CountPanes if spec.count_window.overlapping else CountAggregate)(spec, shards, given)


def _compact(spec: AggregateSpec, batches: Sequence[pa.RecordBatch], horizon: int, *, complete: bool) -> pa.RecordBatch:
    if spec.pattern is not Pattern.RMW:
        return sections.compact(spec, batches, horizon, complete=complete)
    bury = complete and spec.ttl is not None
    return compaction.compact_records(spec.record_layout(), batches, horizon, bury=bury)


RUNTIME = OperatorRuntime(_operator, _compact, VIEW, warm_up_count)
