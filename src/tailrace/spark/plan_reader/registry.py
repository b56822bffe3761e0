"""Which nodes of a plan are operators of Tailrace: one module for each kind, one line here."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.spark.expressions.plans import Node
from tailrace.spark.plan_reader.aggregation import read_aggregation, read_distinct
from tailrace.spark.plan_reader.deduplication import read_deduplication, read_deduplication_within_watermark
from tailrace.spark.plan_reader.per_key import read_group_state, read_processor, read_processor_with_event_time
from tailrace.spark.plan_reader.reading import Reader
from tailrace.spark.plan_reader.stream_join import read_stream_join

READERS: Mapping[str, Reader] = {
    "Aggregate": read_aggregation,
    "Deduplicate": read_deduplication,
    "DeduplicateWithinWatermark": read_deduplication_within_watermark,
    "Distinct": read_distinct,
    "FlatMapGroupsInPandasWithState": read_group_state,
    "Join": read_stream_join,
    "TransformWithStateInPySpark": read_processor,
    "UpdateEventTimeWatermarkColumn": read_processor_with_event_time,
}
"""By the kind of node."""

_SPARKS_OWN = frozenset(
    {
        *("FlatMapGroupsWithState", "GlobalLimit", "TransformWithState", "FlatMapGroupsInPandas"),
        *("FlatMapGroupsInArrow", "FlatMapCoGroupsInPandas", "FlatMapCoGroupsInArrow"),
    }
)


def is_stateful(node: Node) -> bool:
    """Whether a node needs to know more than one row of its streams."""
    if node.kind == "Join":  # with a static table it is Spark's own work
        return sum(child.is_streaming for child in node.children) > 1
    return node.kind in READERS or node.kind in _SPARKS_OWN


def goes_by_watermark(node: Node) -> bool:
    """Whether the rows that a node gives, and not only when it gives them, follow from where the watermark stands."""
    return node.kind in _BY_WATERMARK


_BY_WATERMARK = frozenset(
    {
        "DeduplicateWithinWatermark",  # a key that is forgotten is given again
        *(
            "FlatMapGroupsInPandasWithState",
            "TransformWithStateInPySpark",
        ),  # a timer comes up before a row, or behind it
    }
)
