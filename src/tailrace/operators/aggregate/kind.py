"""An aggregation, as an operator."""

from __future__ import annotations

from tailrace.api.relations import Aggregation
from tailrace.operators.aggregate.describe import DESCRIPTION
from tailrace.operators.aggregate.ingest import aggregate_ingest
from tailrace.operators.aggregate.planning import plan_aggregation
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.kind import OperatorKind, OperatorRuntime


def _runtime() -> OperatorRuntime[AggregateSpec]:
    from tailrace.operators.aggregate.runtime import RUNTIME  # lazy: the driver and tasks hold no state

    return RUNTIME


AGGREGATE = OperatorKind(
    AggregateSpec, Aggregation, "aggregate", plan_aggregation, DESCRIPTION, aggregate_ingest, _runtime
)
