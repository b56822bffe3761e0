"""The best rows of each group, as an operator."""

from __future__ import annotations

from tailrace.api.relations import Ranking
from tailrace.operators.kind import OperatorKind, OperatorRuntime
from tailrace.operators.top_n.describe import DESCRIPTION
from tailrace.operators.top_n.ingest import TopNIngest
from tailrace.operators.top_n.planning import plan_ranking
from tailrace.operators.top_n.spec import TopNSpec


def _runtime() -> OperatorRuntime[TopNSpec]:
    from tailrace.operators.top_n.runtime import RUNTIME  # lazy: the driver and tasks hold no state

    return RUNTIME


TOP_N = OperatorKind(
    spec=TopNSpec,
    relation=Ranking,
    name="top",
    plan=plan_ranking,
    description=DESCRIPTION,
    ingest=lambda spec, context: TopNIngest(spec, context.late_before, context.combine),
    runtime=_runtime,
)
