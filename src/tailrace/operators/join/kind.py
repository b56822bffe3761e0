"""A join of two streams, as an operator."""

from __future__ import annotations

from tailrace.api.relations import Join
from tailrace.operators.ingest.contract import Ingest, IngestContext
from tailrace.operators.join.describe import DESCRIPTION
from tailrace.operators.join.ingest import JoinIngest
from tailrace.operators.join.planning import both_inputs, plan_join
from tailrace.operators.join.spec import JoinSpec
from tailrace.operators.kind import OperatorKind, OperatorRuntime


def _ingest(spec: JoinSpec, context: IngestContext) -> Ingest:
    return JoinIngest(spec, context.late_before)


def _runtime() -> OperatorRuntime[JoinSpec]:
    from tailrace.operators.join.runtime import RUNTIME  # lazy: the driver and tasks hold no state

    return RUNTIME


JOIN = OperatorKind(JoinSpec, Join, "join", plan_join, DESCRIPTION, _ingest, _runtime, both_inputs)
