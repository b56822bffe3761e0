"""A user's function of rows and state on a state server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tailrace.operators.kind import OperatorRuntime
from tailrace.operators.process.operator import Process
from tailrace.operators.process.spec import ProcessSpec
from tailrace.operators.state_view import Columns, StateView
from tailrace.state.sections import compaction


def _compact(spec: ProcessSpec, batches: Sequence[pa.RecordBatch], horizon: int, *, complete: bool) -> pa.RecordBatch:
    return compaction.compact_records(spec.kept_layout(), batches, horizon, bury=complete)


def _rows(spec: ProcessSpec, section: pa.RecordBatch, horizon: int, *, records: bool) -> Iterator[pa.RecordBatch]:
    shown, first = Columns(), 2 + len(spec.keys)
    shown.fields(spec.keys, section.columns[2:])
    shown.fields(spec.state, section.columns[first + len(spec.hidden) :])
    shown.expiry(spec.ttl, section.column(first))
    yield shown.batch()


VIEW = StateView(_rows, identity=lambda spec, records: len(spec.keys))
RUNTIME = OperatorRuntime(Process, _compact, VIEW)
