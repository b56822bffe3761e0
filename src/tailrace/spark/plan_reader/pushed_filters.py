"""Filters that Spark's optimizer moves below ``withWatermark``, in a plan whose other parts stay where they are.

A row that such a filter leaves out does not move event time on Spark, wherever the query has the filter: behind an
aggregation it may be about the keys, behind a join about one side, and joined keys must not be null. So each of them is
put below its ``withWatermark`` here too, and stays where it was as well.

Which ones Spark moves its own optimizer says, of the plan with a limit below each watermark: filters do not pass it.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import SparkSession

from tailrace.spark.expressions.catalyst import Expression
from tailrace.spark.expressions.plans import Node

_WATERMARK = "EventTimeWatermark"


def with_pushed_filters(plan: Node, spark: SparkSession) -> Node:
    if not any(node.kind == _WATERMARK for node in plan.walk()) or plan.reads_clock:
        return plan  # the optimizer would put the present time in the clock's place
    optimized = _over_limits(plan).optimized(spark)
    ours, sparks = (
        [node for node in each.walk() if node.kind == _WATERMARK and node.is_streaming] for each in (plan, optimized)
    )
    if [node.event_time_id() for node in ours] != [node.event_time_id() for node in sparks]:
        return plan  # it has done more than to move filters
    return _filtered(plan, iter([list(_moved(node)) for node in sparks]))


def _over_limits(node: Node) -> Node:
    children = [_over_limits(child) if child.is_streaming else child for child in node.children]
    if node.kind == _WATERMARK:
        children = [children[0].limited()]
    return node.with_children(children) if children else node


def _moved(watermark: Node) -> Iterator[Expression]:
    node = watermark.child
    while node.kind in ("Filter", "Project"):
        if node.kind == "Filter" and not node.subqueries:
            yield node.condition()
        node = node.child


def _filtered(node: Node, moved: Iterator[list[Expression]]) -> Node:
    """``moved``: of each watermark, from the top."""
    conditions = next(moved) if node.kind == _WATERMARK else []
    known = {column.id for child in node.children for column in child.output} if conditions else set()
    children = [_filtered(child, moved) if child.is_streaming else child for child in node.children]
    for condition in conditions:
        if condition.references <= known:  # else it is about what a Python function gives, which Spark calls apart
            children = [children[0].where(condition)]
    if all(new is old for new, old in zip(children, node.children, strict=True)):
        return node
    return node.with_children(children)
