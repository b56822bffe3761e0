"""What a plan does with the columns below it: which of them it passes on, and whether a replay would give the same."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.spark.expressions.catalyst import Expression
from tailrace.spark.expressions.plans import Node


def passed_on(plan: Node, below: Expression) -> list[Expression]:
    """The columns of a plan that are, renamed or not, one of the columns below."""
    renamed = {
        each.id: each.unaliased.id
        for node in _nodes(plan)
        for each in node.expressions
        if each.kind == "Alias" and each.unaliased.is_attribute
    }

    def origin(column: Expression) -> int:
        found = column.id
        while found != below.id and found in renamed:
            found = renamed[found]
        return found

    return [column for column in plan.output if origin(column) == below.id]


def unrepeatable(plan: Node) -> Expression | None:
    """An expression that would give something else in a replay."""
    return next((each for node in _nodes(plan) for each in node.expressions if not each.repeatable), None)


def _nodes(plan: Node) -> Iterator[Node]:
    yield plan
    for child in plan.children:
        yield from _nodes(child)
