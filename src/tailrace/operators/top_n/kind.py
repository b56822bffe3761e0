"""The best rows of each group, as an operator."""

from __future__ import annotations

from tailrace.api.relations import Ranking
from tailrace.operators.aggregate.ingest.rows import RowIngest
from tailrace.operators.ingest.contract import Ingest, IngestContext
from tailrace.operators.kind import OperatorKind, OperatorRuntime
from tailrace.operators.top_n.describe import DESCRIPTION
from tailrace.operators.top_n.ingest import TopNIngest
from tailrace.operators.top_n.planning import plan_ranking
from tailrace.operators.top_n.spec import TopNSpec


def _ingest(spec: TopNSpec, context: IngestContext) -> Ingest:
    if spec.keeps_rows:
        return RowIngest(spec.kept(), context.late_before, context.epoch)
    return TopNIngest(spec, context.late_before, context.combine)


def _runtime() -> OperatorRuntime[TopNSpec]:
    from tailrace.operators.top_n.runtime import RUNTIME  # lazy: the driver and tasks hold no state

    return RUNTIME


TOP_N = OperatorKind(TopNSpec, Ranking, "top", plan_ranking, DESCRIPTION, _ingest, _runtime)
