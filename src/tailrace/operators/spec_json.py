"""Reads the description of an operator of any kind."""

from __future__ import annotations

import json

from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.dedup import spec as deduplicate
from tailrace.operators.join.spec import JoinKind, JoinSpec
from tailrace.operators.lookup import spec as lookup
from tailrace.operators.process import spec as process
from tailrace.operators.spec import OperatorSpec
from tailrace.operators.top_n import spec as top_n


def spec_from_json(text: str) -> OperatorSpec:
    kind = json.loads(text).get("kind")
    if kind in set(JoinKind):
        return JoinSpec.from_json(text)
    if kind == deduplicate.KIND:
        return deduplicate.DeduplicateSpec.from_json(text)
    if kind == lookup.KIND:
        return lookup.LookupSpec.from_json(text)
    if kind == process.KIND:
        return process.ProcessSpec.from_json(text)
    if kind == top_n.KIND:
        return top_n.TopNSpec.from_json(text)
    return AggregateSpec.from_json(text)
