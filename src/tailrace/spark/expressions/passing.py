"""Columns that a plan leaves out, passed on to its top beside its own."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.errors import AnalysisError
from tailrace.spark.expressions.catalyst import Expression
from tailrace.spark.expressions.plans import Node

_WHOLE_ROWS = frozenset(
    {
        *("Filter", "SubqueryAlias", "View", "Generate", "Sample", "ResolvedHint", "Repartition", "CollectMetrics"),
        *("RepartitionByExpression", "RebalancePartitions", "EventTimeWatermark", "Join"),
    }
)
"""What gives all columns of the stream below, and more at most."""


def passing(plan: Node, columns: Sequence[Expression]) -> Node:
    """The plan, with these columns of nodes below among its own."""
    known = {column.id for column in plan.output}
    missing = [column for column in columns if column.id not in known]
    if not missing:
        return plan
    streaming = [number for number, child in enumerate(plan.children) if child.is_streaming]
    if len(streaming) != 1 or plan.kind not in (*_WHOLE_ROWS, "Project"):
        names = ", ".join(column.name for column in missing)
        raise AnalysisError(
            f"withWatermark is on {names}, which a {plan.kind} behind it does not pass on: call it behind that"
        )
    (number,) = streaming
    below = passing(plan.children[number], missing)
    if plan.kind == "Project":
        return below.choosing([*plan.expressions, *missing])
    made = plan.with_child(number, below)
    if any(column.id not in {each.id for each in made.output} for column in missing):
        raise AnalysisError(f"withWatermark is on {missing[0].name}, which a {plan.join_type()} join behind it drops")
    return made
