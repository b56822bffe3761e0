"""United streams that each have a watermark of their own, taken apart: time goes on by the slowest of them.

What lies above the union treats each row by itself, so that it may as well lie above each of the streams.
"""

from __future__ import annotations

from tailrace.errors import AnalysisError
from tailrace.spark.expressions.plans import Node

_WATERMARK = "EventTimeWatermark"


def apart(plan: Node) -> list[tuple[Node, int]]:
    """The plans of streams whose rows, united, are those of a plan; and of each the delay of its watermark in
    milliseconds.
    """
    marks = sum(node.kind == _WATERMARK for node in plan.walk())
    path, node = [], plan
    while node.kind != "Union":
        if node.kind == _WATERMARK and marks == 1:
            return [(plan, _delay_ms(node))]
        streaming = [number for number, child in enumerate(node.children) if child.is_streaming]
        if node.kind == _WATERMARK or len(streaming) != 1:
            raise AnalysisError(
                f"withWatermark is called {marks} times below one operator, and not once in each of the streams "
                f"that are united: call it once, behind what brings the streams together"
            )
        path.append((node, streaming[0]))
        node = node.children[streaming[0]]
    _check_places(node)
    found = []
    for child in node.children:
        made = child.choosing([own.named_as(column) for own, column in zip(child.output, node.output, strict=True)])
        for above, number in reversed(path):
            made = above.with_child(number, made)
        found += apart(made)
    return found


def _delay_ms(mark: Node) -> int:
    found = next(column.delay_ms for column in mark.output if column.id == mark.event_time_id())
    assert found is not None
    return found


def _check_places(union: Node) -> None:
    places = {
        tuple(n for n, column in enumerate(child.output) if column.delay_ms is not None) for child in union.children
    }
    if len(places) != 1 or len(next(iter(places))) != 1:
        raise AnalysisError(
            "of united streams each needs a watermark, on the column that stands in the same place, or none of them: "
            "call withWatermark once, behind the union"
        )
