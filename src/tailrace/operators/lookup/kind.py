"""A join with a lookup table, as an operator."""

from __future__ import annotations

from tailrace.api.relations import Lookup
from tailrace.operators.ingest.contract import Ingest, IngestContext
from tailrace.operators.ingest.rows import PassingIngest
from tailrace.operators.kind import OperatorKind, OperatorRuntime
from tailrace.operators.lookup.describe import DESCRIPTION
from tailrace.operators.lookup.planning import plan_lookup
from tailrace.operators.lookup.spec import LookupSpec


def _ingest(spec: LookupSpec, context: IngestContext) -> Ingest:
    return PassingIngest(spec)


def _runtime() -> OperatorRuntime[LookupSpec]:
    from tailrace.operators.lookup.runtime import RUNTIME  # lazy: the driver and tasks hold no state

    return RUNTIME


LOOKUP = OperatorKind(LookupSpec, Lookup, "lookup", plan_lookup, DESCRIPTION, _ingest, _runtime)
