"""Numbering rows on a state server."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tailrace.env.files.scratch import temporary_folder
from tailrace.operators.ingest.rows import PassingIngest
from tailrace.operators.kind import OperatorRuntime
from tailrace.operators.resources import Resources
from tailrace.operators.row_number.operator import RowNumbers
from tailrace.operators.row_number.spec import RowNumberSpec
from tailrace.operators.rows.keyed_warm_up import KEY, TIME, run_epochs
from tailrace.state.sections import compaction


def _compact(spec: RowNumberSpec, batches: Sequence[pa.RecordBatch], horizon: int, *, complete: bool) -> pa.RecordBatch:
    return compaction.compact_records(spec.kept_layout(), batches, horizon)


def _warm_up() -> None:
    spec = RowNumberSpec("warm-up", (KEY,), (KEY, TIME), TIME, "number", None, shards=1)
    with temporary_folder() as folder:
        run_epochs(RowNumbers(spec, [0], Resources(0, folder, threads=1)), PassingIngest(spec))


RUNTIME = OperatorRuntime(RowNumbers, _compact, _warm_up)
