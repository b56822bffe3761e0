"""An aggregation, as an operator."""

from __future__ import annotations

from tailrace.api.relations import Aggregation
from tailrace.operators.aggregate.describe import DESCRIPTION
from tailrace.operators.aggregate.ingest.partials import PartialIngest
from tailrace.operators.aggregate.ingest.rows import RowIngest
from tailrace.operators.aggregate.planning import plan_aggregation
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.ingest.contract import Ingest, IngestContext
from tailrace.operators.kind import OperatorKind, OperatorRuntime


def _ingest(spec: AggregateSpec, context: IngestContext) -> Ingest:
    """Rows where the aggregation keeps them, partial aggregates otherwise."""
    if spec.sends_rows:
        return RowIngest(spec, context.late_before, context.epoch)
    return PartialIngest(spec, context.late_before, context.combine, context.input_types, context.epoch)


def _runtime() -> OperatorRuntime[AggregateSpec]:
    from tailrace.operators.aggregate.runtime import RUNTIME  # lazy: the driver and tasks hold no state

    return RUNTIME


AGGREGATE = OperatorKind(AggregateSpec, Aggregation, "aggregate", plan_aggregation, DESCRIPTION, _ingest, _runtime)
