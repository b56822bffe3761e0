"""The best rows of each group on a state server."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.ids import MIN_MICROS
from tailrace.operators.base import Operator
from tailrace.operators.kind import OperatorRuntime
from tailrace.operators.resources import Resources
from tailrace.operators.rows.keyed_warm_up import KEY, TIME, run_epochs
from tailrace.operators.top_n.best_spec import Order
from tailrace.operators.top_n.ingest import TopNIngest
from tailrace.operators.top_n.operator import TopN
from tailrace.operators.top_n.sections import compact_sections
from tailrace.operators.top_n.spec import TopNSpec
from tailrace.operators.top_n.ttl_operator import TtlTopN


def _operator(spec: TopNSpec, shards: Iterable[int], given: Resources) -> Operator:
    chosen = TopN if spec.ttl is None else TtlTopN
    return chosen(spec, shards, given)


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


RUNTIME = OperatorRuntime(_operator, compact_sections, _warm_up)
