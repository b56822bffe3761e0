"""A stream without duplicates to the operator that a state server runs for it."""

from __future__ import annotations

from tailrace.api.relations import Deduplication, OutputMode, Relation, passed_on
from tailrace.errors import AnalysisError
from tailrace.ids import Micros
from tailrace.operators.dedup.spec import DeduplicateSpec
from tailrace.operators.planning.ttl import plan_ttl
from tailrace.operators.spec import VALUES_MAX


def plan_deduplication(stream: Deduplication, output_mode: OutputMode, shards: int, name: str) -> DeduplicateSpec:
    width = len(stream.schema)
    if width > VALUES_MAX:
        raise AnalysisError(
            f"dropDuplicates: a row has {width} columns, and at most {VALUES_MAX} can be passed on: select those that "
            f"you need first"
        )
    watermark, ttl = stream.watermark, stream.state_ttl
    delay = Micros(0) if watermark is None else watermark.delay
    processing = ttl is not None and ttl.processing
    if ttl is not None and not processing:
        delay = ttl.span
    return DeduplicateSpec(
        name=name,
        keys=stream.keys,
        columns=stream.schema,
        time_column=None if watermark is None else watermark.column,
        watermarked=watermark is not None,
        within=stream.within or (ttl is not None and not processing),
        delay=delay,
        handed_over=isinstance(passed_on(stream.source), Relation),
        shards=shards,
        ttl=plan_ttl(ttl) if processing else None,
    )
