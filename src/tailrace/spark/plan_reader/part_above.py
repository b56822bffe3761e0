"""What lies above the last operators of a plan: Spark applies it to the rows of each epoch (``SparkHop``).

Only what treats each row by itself, or with a static table, may be there: an epoch's rows are not all rows. In the
output mode ``complete`` they are, and may be sorted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from pyspark.sql import DataFrame

from tailrace.errors import AnalysisError
from tailrace.spark.expressions.places import placed
from tailrace.spark.expressions.plans import Above, Leaf, Node, Template

_ROW_BY_ROW = frozenset(
    {
        *("Project", "Filter", "Union", "SubqueryAlias", "View", "Generate", "ResolvedHint", "Repartition"),
        *("RepartitionByExpression", "RebalancePartitions", "MapInPandas", "MapInArrow", "PythonMapInArrow"),
        *("MapElements", "MapPartitions", "SerializeFromObject", "DeserializeToObject", "TypedFilter"),
    }
)
_OF_ALL_ROWS = frozenset({"Sort"})
_STATIC_JOINS = {0: ("Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti"), 1: ("Inner", "Cross", "RightOuter")}
"""By which side streams: a row of the table without a match has no place in a stream."""


class PartAbove:
    """A function of the rows of operators, of as many as ``root`` has leaves. ``complete``: they are all rows."""

    def __init__(self, root: Above | Leaf, complete: bool) -> None:
        above = list(root.walk()) if isinstance(root, Above) else []
        _check(_leaves(root), above, _ROW_BY_ROW | _OF_ALL_ROWS if complete else _ROW_BY_ROW)
        self._template = Template(root)
        self.label = ", ".join(_shown(each.node) for each in above) or "the aggregation's own expressions"

    def __call__(self, *frames: DataFrame) -> DataFrame:
        return self._template.over(*frames)


def _leaves(place: Above | Leaf) -> Iterator[Leaf]:
    if isinstance(place, Leaf):
        yield place
    else:
        for each in place.below.values():
            yield from _leaves(each)


def _check(leaves: Iterable[Leaf], above: Sequence[Above], kinds: Collection[str]) -> None:
    results = [each for leaf in leaves for each in leaf.results or ()]
    for each in [*results, *(each for place in above for each in place.node.expressions)]:
        if not each.repeatable:
            with placed(each):
                raise AnalysisError(
                    f"{each.text}, behind the last operator, would give something else in a replay: compute it before "
                    f"the operator, or in foreachBatch"
                )
    for place in above:
        with placed(place.node):
            _check_node(place.node, list(place.below), kinds)


def _check_node(node: Node, streaming: Sequence[int], kinds: Collection[str]) -> None:
    """``streaming``: which of its children are rows of operators. ``kinds``: what else may be there."""
    if any(each.is_streaming for each in node.subqueries):
        raise AnalysisError(f"a subquery of a {node.kind} behind the last operator reads a stream")
    if node.kind == "Join":
        if node.join_type() not in _STATIC_JOINS[streaming[0]]:
            raise AnalysisError(f"a {node.join_type()} join of operators' rows with a table keeps rows of the table")
    elif node.kind == "EventTimeWatermark":
        raise AnalysisError("withWatermark behind an operator: Tailrace's rows keep the watermark of their streams")
    elif node.kind not in kinds:
        raise AnalysisError(f"a {node.kind} behind the last operator is about more rows than those of an epoch")


def _shown(node: Node) -> str:
    text = ", ".join(each.text for each in node.expressions)
    return f"{node.kind} {text}"[:200].rstrip()
