"""What lies above the last operator of a plan: Spark applies it to the rows of each epoch (``SparkHop``).

Only what treats each row by itself, or with a static table, may be there: an epoch's rows are not all rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from tailrace.errors import AnalysisError
from tailrace.spark.expressions.catalyst import Expression
from tailrace.spark.expressions.plans import Node, Step, Template

_ROW_BY_ROW = frozenset(
    {
        *("Project", "Filter", "SubqueryAlias", "View", "Generate", "ResolvedHint", "Repartition"),
        *("RepartitionByExpression", "RebalancePartitions", "MapInPandas", "MapInArrow", "PythonMapInArrow"),
        *("MapElements", "MapPartitions", "SerializeFromObject", "DeserializeToObject", "TypedFilter"),
    }
)
_STATIC_JOINS = {0: ("Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti"), 1: ("Inner", "Cross", "RightOuter")}
"""By which side streams: a row of the table without a match has no place in a stream."""


class PartAbove:
    """A function of an operator's rows. ``leaf``: columns that the part reads, and their numbers among those rows."""

    def __init__(
        self, leaf: Sequence[tuple[Expression, int]], results: Sequence[Expression] | None, steps: Sequence[Step]
    ) -> None:
        _check(results or (), steps)
        self._template = Template(leaf, results, steps)
        self.label = ", ".join(_shown(step.node) for step in steps) or "the aggregation's own expressions"

    def __call__(self, frame: DataFrame) -> DataFrame:
        return self._template.over(frame)


def _check(results: Sequence[Expression], steps: Sequence[Step]) -> None:
    expressions = [*results, *(each for step in steps for each in step.node.expressions)]
    for each in expressions:
        if not each.repeatable:
            raise AnalysisError(
                f"{each.text}, behind the last operator, would give something else in a replay: compute it before the "
                f"operator, or in foreachBatch"
            )
    for step in steps:
        _check_node(step.node, step.number)


def _check_node(node: Node, streaming: int) -> None:
    if any(each.is_streaming for each in node.subqueries):
        raise AnalysisError(f"a subquery of a {node.kind} behind the last operator reads a stream")
    if node.kind == "Join":
        if node.join_type() not in _STATIC_JOINS[streaming]:
            raise AnalysisError(f"a {node.join_type()} join of operators' rows with a table keeps rows of the table")
    elif node.kind == "EventTimeWatermark":
        raise AnalysisError("withWatermark behind an operator: Tailrace's rows keep the watermark of their streams")
    elif node.kind not in _ROW_BY_ROW:
        raise AnalysisError(f"a {node.kind} behind the last operator is about more rows than those of an epoch")


def _shown(node: Node) -> str:
    text = ", ".join(each.text for each in node.expressions)
    return f"{node.kind} {text}"[:200].rstrip()
