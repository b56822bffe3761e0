"""A join of two streams on a state server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from tailrace.operators.base import Operator
from tailrace.operators.join import sections
from tailrace.operators.join.interval_join import JoinRows
from tailrace.operators.join.semi_join import SemiJoinRows
from tailrace.operators.join.spec import JoinKind, JoinSpec
from tailrace.operators.join.state_view import VIEW
from tailrace.operators.join.window_join import WindowJoin
from tailrace.operators.kind import OperatorRuntime
from tailrace.operators.resources import Resources
from tailrace.state.append import aligned


def _operator(spec: JoinSpec, shards: Iterable[int], given: Resources) -> Operator:
    if spec.kind is JoinKind.WINDOW:
        return WindowJoin(spec, shards, given)
    return (SemiJoinRows if spec.semi else JoinRows)(spec, shards, given)


def _compact(spec: JoinSpec, batches: Sequence[pa.RecordBatch], horizon: int, *, complete: bool) -> pa.RecordBatch:
    if spec.kind is JoinKind.WINDOW:
        return aligned.compact_sections(spec.kept_layout(), batches, horizon)
    return sections.compact(spec.kept_layout(), batches, horizon)


RUNTIME = OperatorRuntime(_operator, _compact, VIEW)
