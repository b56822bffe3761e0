"""A stored plan with another number of shards. What operators keep of a key does not depend on its shard.

Pure functions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from tailrace.operators.registry import compact_sections, spec_from_json
from tailrace.operators.spec import OperatorSpec


def shards_of(plan: Mapping[str, Any]) -> int:
    """How many its operators have: all the same."""
    (shards,) = {spec.shards for spec in _specs(plan)}
    return shards


def resharded(plan: Mapping[str, Any], shards: int) -> dict[str, Any]:
    """The same query with so many."""
    return {**plan, "operators": [{**each, "shards": shards} for each in plan["operators"]]}


def compacting(plan: Mapping[str, Any]) -> Callable[[str, list[pa.RecordBatch], int, bool], pa.RecordBatch]:
    """``CompactSections`` of its operators."""
    specs = {spec.name: spec for spec in _specs(plan)}

    def compact(operator: str, batches: list[pa.RecordBatch], horizon: int, complete: bool) -> pa.RecordBatch:
        return compact_sections(specs[operator], batches, horizon, complete=complete)

    return compact


def _specs(plan: Mapping[str, Any]) -> list[OperatorSpec]:
    return [spec_from_json(json.dumps(each)) for each in plan["operators"]]
