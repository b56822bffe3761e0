"""Numbering rows on a state server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tailrace.operators.ingest.rows import PassingIngest
from tailrace.operators.kind import OperatorRuntime
from tailrace.operators.row_number.operator import RowNumbers
from tailrace.operators.row_number.spec import RowNumberSpec
from tailrace.operators.rows.keyed_warm_up import KEY, TIME, run_epochs
from tailrace.operators.state_view import ROWS, Columns, StateView
from tailrace.state.sections import compaction


def _compact(spec: RowNumberSpec, batches: Sequence[pa.RecordBatch], horizon: int, *, complete: bool) -> pa.RecordBatch:
    return compaction.compact_records(spec.kept_layout(), batches, horizon)


def _warm_up() -> None:
    spec = RowNumberSpec("warm-up", (KEY,), (KEY, TIME), TIME, "number", None, shards=1)
    run_epochs(RowNumbers, spec, PassingIngest(spec))


def _rows(spec: RowNumberSpec, section: pa.RecordBatch, horizon: int, *, records: bool) -> Iterator[pa.RecordBatch]:
    shown = Columns()
    shown.fields(spec.keys, section.columns[2:])
    shown.own(ROWS, section.column(2 + len(spec.keys)))
    yield shown.batch()


VIEW = StateView(_rows, identity=lambda spec, records: len(spec.keys))
RUNTIME = OperatorRuntime(RowNumbers, _compact, VIEW, _warm_up)
