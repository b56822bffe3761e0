"""A per-key function of PySpark's, as an operator."""

from __future__ import annotations

from tailrace.api.processors import StatefulProcessing
from tailrace.operators.ingest.contract import Ingest, IngestContext
from tailrace.operators.kind import OperatorKind, OperatorRuntime
from tailrace.operators.stateful_processor.describe import DESCRIPTION
from tailrace.operators.stateful_processor.ingest import ProcessorIngest
from tailrace.operators.stateful_processor.planning import plan_processing
from tailrace.operators.stateful_processor.spec import StatefulProcessorSpec


def _ingest(spec: StatefulProcessorSpec, context: IngestContext) -> Ingest:
    return ProcessorIngest(spec, context.late_before)


def _runtime() -> OperatorRuntime[StatefulProcessorSpec]:
    from tailrace.operators.stateful_processor.runtime import RUNTIME  # lazy: the driver and tasks hold no state

    return RUNTIME


STATEFUL_PROCESSOR = OperatorKind(
    StatefulProcessorSpec,
    StatefulProcessing,
    "stateful_processor",
    plan_processing,
    DESCRIPTION,
    _ingest,
    _runtime,
)
