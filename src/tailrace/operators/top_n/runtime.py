"""The best rows of each group on a state server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from tailrace.ids import MIN_MICROS
from tailrace.operators.aggregate import runtime as aggregate_runtime
from tailrace.operators.aggregate.holistic.unaligned_windows import WindowLists
from tailrace.operators.base import Operator
from tailrace.operators.count_window.holistic import CountRows
from tailrace.operators.kind import OperatorRuntime
from tailrace.operators.resources import Resources
from tailrace.operators.rows.keyed_warm_up import KEY, TIME, run_epochs
from tailrace.operators.session.holistic import SessionRows
from tailrace.operators.top_n.best_results import BestResults
from tailrace.operators.top_n.ingest import TopNIngest
from tailrace.operators.top_n.operator import TopN
from tailrace.operators.top_n.sections import compact_sections
from tailrace.operators.top_n.spec import Order, TopNSpec
from tailrace.operators.top_n.state_view import VIEW
from tailrace.operators.top_n.ttl_operator import TtlTopN
from tailrace.operators.windows.any_window import window_kind_of
from tailrace.operators.windows.window_kind import WindowKind

_OVER_ALL_ROWS: dict[WindowKind, type[SessionRows] | type[CountRows] | type[WindowLists]] = {
    WindowKind.SESSION: SessionRows,
    WindowKind.COUNT: CountRows,
    WindowKind.CUSTOM: WindowLists,
}


def _operator(spec: TopNSpec, shards: Iterable[int], given: Resources) -> Operator:
    if spec.keeps_rows:
        return _OVER_ALL_ROWS[window_kind_of(spec.window)](spec.kept(), shards, given, results=BestResults(spec))
    return TopN(spec, shards, given) if spec.ttl is None else TtlTopN(spec, shards, given)


def _compact(spec: TopNSpec, batches: Sequence[pa.RecordBatch], horizon: int, *, complete: bool) -> pa.RecordBatch:
    if spec.keeps_rows:
        return aggregate_runtime.compact_sections(spec.kept(), batches, horizon, complete=complete)
    return compact_sections(spec, batches, horizon, complete=complete)


def _warm_up() -> None:
    spec = TopNSpec(
        name="warm-up",
        keys=(KEY,),
        rows=(TIME,),
        shown=("ts",),
        order=(Order("ts", ascending=False),),
        n=2,
        rank="rank",
        window=None,
        window_name="",
        window_position=0,
        time_column=TIME,
        emit_changed=True,
        watermarked=False,
        shards=1,
    )
    run_epochs(TopN, spec, TopNIngest(spec, MIN_MICROS, combine=True))


RUNTIME = OperatorRuntime(_operator, _compact, VIEW, _warm_up)
