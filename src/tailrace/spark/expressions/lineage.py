"""What a plan does with the columns below it: which of them it passes on, and whether a replay would give the same."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.spark.expressions.catalyst import Expression
from tailrace.spark.expressions.plans import Node

_CHOICES = ("Project", "SubqueryAlias")


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


def between(plan: Node, below: Node) -> list[Node]:
    """The nodes of a plan over another one, to which its first children lead; the lowest first."""
    nodes = _chain(plan)
    return nodes[: len(nodes) - len(_chain(below))][::-1]


def chooses(plan: Node, below: Node) -> bool:
    """Whether a plan gives all rows below and some of their columns, as they are."""
    own = {(column.id, column.name) for column in below.output}
    whole_rows = all(node.kind in _CHOICES for node in between(plan, below))
    return whole_rows and all((column.id, column.name) in own for column in plan.output)


def _chain(plan: Node) -> list[Node]:
    """A node and what lies below it, always the first child."""
    return [plan, *_chain(plan.children[0])] if plan.children else [plan]


def _nodes(plan: Node) -> Iterator[Node]:
    yield plan
    for child in plan.children:
        yield from _nodes(child)
