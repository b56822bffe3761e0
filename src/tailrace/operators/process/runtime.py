"""A user's function of rows and state on a state server."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tailrace.operators.kind import OperatorRuntime
from tailrace.operators.process.operator import Process
from tailrace.operators.process.spec import ProcessSpec
from tailrace.state.sections import compaction


def _compact(spec: ProcessSpec, batches: Sequence[pa.RecordBatch], horizon: int, *, complete: bool) -> pa.RecordBatch:
    return compaction.compact_records(spec.kept_layout(), batches, horizon, bury=complete)


RUNTIME = OperatorRuntime(Process, _compact)
