"""United streams that each have a watermark of their own, taken apart: time goes on by the slowest of them.

Of several watermarks on the way of one stream's rows the slowest counts too: each is a clock of the stream.

What lies above the union treats each row by itself, so that it may as well lie above each of the streams.
"""

from __future__ import annotations

from tailrace.errors import AnalysisError
from tailrace.spark.expressions.catalyst import Expression
from tailrace.spark.expressions.plans import Node

_WATERMARK = "EventTimeWatermark"


def marks_of(plan: Node) -> list[tuple[Expression, int]]:
    """The columns with a watermark on the way of one stream's rows, the last one first, and the delays in milliseconds.
    Empty where the rows are of several streams that each have their own.
    """
    found, node = [], plan
    while True:
        if node.kind == _WATERMARK:
            found.append((_time_of(node), _delay_ms(node)))
        streaming = [child for child in node.children if child.is_streaming]
        if not streaming:
            return found
        if len(streaming) > 1:
            below = any(each.kind == _WATERMARK for child in streaming for each in child.walk())
            if found and below:
                raise AnalysisError(
                    "withWatermark is called behind the union of streams that have watermarks, too: call it in each "
                    "of the streams, or behind their union"
                )
            return found
        (node,) = streaming


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
                f"withWatermark is called {marks} times in one of the streams that are united: call it once in each, "
                f"or behind what brings them together"
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


def _time_of(mark: Node) -> Expression:
    return next(column for column in mark.output if column.id == mark.event_time_id())


def _delay_ms(mark: Node) -> int:
    found = _time_of(mark).delay_ms
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
