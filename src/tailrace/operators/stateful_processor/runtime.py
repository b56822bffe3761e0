"""A per-key function of PySpark's on a state server."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tailrace.operators.kind import OperatorRuntime
from tailrace.operators.stateful_processor.operator import StatefulProcessors
from tailrace.operators.stateful_processor.spec import StatefulProcessorSpec
from tailrace.operators.stateful_processor.state_view import VIEW
from tailrace.state.sections import compaction


def _compact(
    spec: StatefulProcessorSpec, batches: Sequence[pa.RecordBatch], horizon: int, *, complete: bool
) -> pa.RecordBatch:
    return compaction.compact_records(spec.kept_layout(), batches, horizon, bury=complete)


RUNTIME = OperatorRuntime(StatefulProcessors, _compact, VIEW)
