"""Numbering rows on a state server."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tailrace.operators.ingest.rows import PassingIngest
from tailrace.operators.kind import OperatorRuntime
from tailrace.operators.row_number.operator import RowNumbers
from tailrace.operators.row_number.spec import RowNumberSpec
from tailrace.operators.rows.keyed_warm_up import KEY, TIME, run_epochs
from tailrace.state.sections import compaction


def _compact(spec: RowNumberSpec, batches: Sequence[pa.RecordBatch], horizon: int, *, complete: bool) -> pa.RecordBatch:
    return compaction.compact_records(spec.kept_layout(), batches, horizon)


def _warm_up() -> None:
    spec = RowNumberSpec("warm-up", (KEY,), (KEY, TIME), TIME, "number", None, shards=1)
    run_epochs(RowNumbers, spec, PassingIngest(spec))


RUNTIME = OperatorRuntime(RowNumbers, _compact, _warm_up)
