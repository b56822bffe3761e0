"""A join of two streams on a state server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from tailrace.operators.base import Operator
from tailrace.operators.join import sections
from tailrace.operators.join.interval_join import JoinRows
from tailrace.operators.join.spec import JoinKind, JoinSpec
from tailrace.operators.join.window_join import WindowJoin
from tailrace.operators.kind import OperatorRuntime, Resources
from tailrace.state.append import aligned


def _operator(spec: JoinSpec, shards: Iterable[int], given: Resources) -> Operator:
    if spec.kind is JoinKind.WINDOW:
        return WindowJoin(spec, shards, memory_bytes=given.memory_bytes, folder=given.folder)
    return JoinRows(spec, shards, memory_bytes=given.memory_bytes, folder=given.folder, tuning=given.tuning)


def _compact(spec: JoinSpec, batches: Sequence[pa.RecordBatch], horizon: int, *, complete: bool) -> pa.RecordBatch:
    if spec.kind is JoinKind.WINDOW:
        return aligned.compact_sections(spec.kept_layout(), batches, horizon)
    return sections.compact(spec.kept_layout(), batches, horizon)


RUNTIME = OperatorRuntime(_operator, _compact)
