"""What tasks send to an aggregation: rows where it keeps them, partial aggregates otherwise."""

from __future__ import annotations

from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.ingest.contract import Ingest, IngestContext
from tailrace.operators.ingest.partials import PartialIngest
from tailrace.operators.ingest.rows import RowIngest


def aggregate_ingest(spec: AggregateSpec, context: IngestContext) -> Ingest:
    if spec.sends_rows:
        return RowIngest(spec, context.late_before, context.epoch)
    return PartialIngest(spec, context.late_before, context.combine, context.input_types, context.epoch)
