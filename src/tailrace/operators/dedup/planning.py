"""A stream without duplicates to the operator that a state server runs for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tailrace.api.relations import Deduplication, Lookup, Relation
from tailrace.errors import AnalysisError
from tailrace.ids import Micros
from tailrace.operators.dedup.spec import DeduplicateSpec
from tailrace.operators.join.planning import narrowed_join
from tailrace.operators.join.spec import JoinSpec
from tailrace.operators.lookup.planning import narrowed_lookup
from tailrace.operators.lookup.spec import LookupSpec
from tailrace.operators.process.planning import plan_ttl
from tailrace.operators.spec import VALUES_MAX, OperatorSpec


def plan_deduplication(stream: Deduplication, shards: int, name: str) -> DeduplicateSpec:
    width = len(stream.schema)
    if width > VALUES_MAX:
        raise AnalysisError(
            f"dropDuplicates: a row has {width} columns, and at most {VALUES_MAX} can be passed on: select those that "
            f"you need before tailrace.stream(...)"
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
        handed_over=_handed_over(stream.source),
        shards=shards,
        ttl=plan_ttl(ttl) if processing else None,
    )


def _handed_over(source: object) -> bool:
    """Whether an operator decided when these rows come. A lookup hands on rows with the times at which they came."""
    while isinstance(source, Lookup):
        source = source.source
    return isinstance(source, Relation)


def narrowed(specs: Sequence[OperatorSpec]) -> list[OperatorSpec]:
    """The operators of a chain: rows that are passed on whole bring only what the next operator reads of them."""
    out: list[OperatorSpec] = []
    for spec in reversed(specs):
        if out and isinstance(spec, DeduplicateSpec):
            needed = {*out[0].reads, *(key.name for key in spec.keys)}
            needed |= set() if spec.time_column is None else {spec.time_column.name}
            spec = replace(spec, columns=tuple(column for column in spec.columns if column.name in needed))
        elif out and isinstance(spec, JoinSpec):
            spec = narrowed_join(spec, out[0].reads)
        elif out and isinstance(spec, LookupSpec):
            spec = narrowed_lookup(spec, out[0].reads)
        out.insert(0, spec)
    return out
