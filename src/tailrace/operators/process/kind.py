"""A user's function of rows and state, as an operator."""

from __future__ import annotations

from tailrace.api.relations import Process
from tailrace.operators.ingest.contract import Ingest, IngestContext
from tailrace.operators.kind import OperatorKind, OperatorRuntime
from tailrace.operators.process.describe import DESCRIPTION
from tailrace.operators.process.ingest import ProcessIngest
from tailrace.operators.process.planning import plan_process
from tailrace.operators.process.spec import ProcessSpec


def _ingest(spec: ProcessSpec, context: IngestContext) -> Ingest:
    return ProcessIngest(spec, context.late_before)


def _runtime() -> OperatorRuntime[ProcessSpec]:
    from tailrace.operators.process.runtime import RUNTIME  # lazy: the driver and tasks hold no state

    return RUNTIME


PROCESS = OperatorKind(ProcessSpec, Process, "process", plan_process, DESCRIPTION, _ingest, _runtime)
