"""A user's function of rows and state, as an operator."""

from __future__ import annotations

from tailrace.api.relations import Process
from tailrace.operators.kind import OperatorKind, OperatorRuntime
from tailrace.operators.process.describe import DESCRIPTION
from tailrace.operators.process.ingest import ProcessIngest
from tailrace.operators.process.planning import plan_process
from tailrace.operators.process.spec import ProcessSpec


def _runtime() -> OperatorRuntime[ProcessSpec]:
    from tailrace.operators.process.runtime import RUNTIME  # lazy: the driver and tasks hold no state

    return RUNTIME


PROCESS = OperatorKind(
    spec=ProcessSpec,
    relation=Process,
    name="process",
    plan=plan_process,
    description=DESCRIPTION,
    ingest=lambda spec, context: ProcessIngest(spec, context.late_before),
    runtime=_runtime,
)
