"""A join of two streams, as an operator."""

from __future__ import annotations

from tailrace.api.relations import Join
from tailrace.operators.join.describe import DESCRIPTION
from tailrace.operators.join.ingest import JoinIngest
from tailrace.operators.join.planning import both_inputs, plan_join
from tailrace.operators.join.spec import JoinSpec
from tailrace.operators.kind import OperatorKind, OperatorRuntime


def _runtime() -> OperatorRuntime[JoinSpec]:
    from tailrace.operators.join.runtime import RUNTIME  # lazy: the driver and tasks hold no state

    return RUNTIME


JOIN = OperatorKind(
    spec=JoinSpec,
    relation=Join,
    name="join",
    plan=plan_join,
    description=DESCRIPTION,
    ingest=lambda spec, context: JoinIngest(spec, context.late_before),
    runtime=_runtime,
    inputs=both_inputs,
)
