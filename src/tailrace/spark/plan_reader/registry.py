"""Which nodes of a plan are operators of Tailrace: one module for each kind, one line here."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.spark.plan_reader.aggregation import read_aggregation
from tailrace.spark.plan_reader.catalyst import Node
from tailrace.spark.plan_reader.reading import Reader

READERS: Mapping[str, Reader] = {
    "Aggregate": read_aggregation,
}
"""By the kind of node."""

_SPARKS_OWN = frozenset(
    {
        *("Deduplicate", "DeduplicateWithinWatermark", "Distinct", "FlatMapGroupsWithState", "GlobalLimit"),
        *(
            "FlatMapGroupsInPandasWithState",
            "TransformWithState",
            "TransformWithStateInPySpark",
            "FlatMapGroupsInPandas",
        ),
        *("FlatMapGroupsInArrow", "FlatMapCoGroupsInPandas", "FlatMapCoGroupsInArrow"),
    }
)


def is_stateful(node: Node) -> bool:
    """Whether a node needs to know more than one row of its streams."""
    if node.kind == "Join":
        return sum(child.is_streaming for child in node.children) > 1
    return node.kind in READERS or node.kind in _SPARKS_OWN
