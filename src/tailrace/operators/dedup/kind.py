"""Dropping duplicates, as an operator."""

from __future__ import annotations

from tailrace.api.relations import Deduplication
from tailrace.operators.dedup.describe import DESCRIPTION
from tailrace.operators.dedup.ingest import DedupIngest
from tailrace.operators.dedup.planning import plan_deduplication
from tailrace.operators.dedup.spec import DeduplicateSpec
from tailrace.operators.ingest.contract import Ingest, IngestContext
from tailrace.operators.kind import OperatorKind, OperatorRuntime


def _ingest(spec: DeduplicateSpec, context: IngestContext) -> Ingest:
    return DedupIngest(spec, context.late_before, context.combine)


def _runtime() -> OperatorRuntime[DeduplicateSpec]:
    from tailrace.operators.dedup.runtime import RUNTIME  # lazy: the driver and tasks hold no state

    return RUNTIME


DEDUPLICATE = OperatorKind(
    DeduplicateSpec, Deduplication, "deduplicate", plan_deduplication, DESCRIPTION, _ingest, _runtime
)
