"""Windows that Spark's analyser has put into a plan, taken out of it again: the operator makes them itself.

``window`` and ``session_window`` are gone from an analysed plan. What is left of them: a projection (sliding windows:
an ``Expand`` with a projection for each window of a row) that computes bounds as a struct, and a filter that drops rows
without a time. The struct's column carries a mark in its metadata, which goes along where the column is renamed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tailrace.api.windows import AnySession, DynamicSessionWindow, SessionWindow, Window
from tailrace.errors import AnalysisError
from tailrace.ids import Micros
from tailrace.spark.expressions.catalyst import Expression
from tailrace.spark.expressions.plans import Node

_PASSING = ("SubqueryAlias", "View")
_AROUND_ENDS = ("KnownNullable", "PreciseTimestampConversion")


@dataclass(frozen=True)
class TakenWindow:
    """``time``: the event time that it is of. ``plan``: what was below the operator, without the window.

    ``ends``: where the gap of sessions differs from row to row, when the session ends that a row would make alone.
    """

    window: Window | AnySession
    time: Expression
    plan: Node
    ends: Expression | None = None

    def named(self, take: Callable[[Expression], str], name: str) -> Window | AnySession:
        """The window over columns. ``take``: gives the name of the column with an expression's values."""
        window = replace(self.window, time_column=take(self.time), name=name)
        if isinstance(window, DynamicSessionWindow):
            assert self.ends is not None
            window = replace(window, ends=take(self.ends))
        return window


def take_window(plan: Node, column: Expression) -> TakenWindow:
    """Finds where a window column was made."""
    return _take(plan, column.id, column.window_kind)


def is_brought(plan: Node, column: Expression) -> bool:
    """Whether rows come with their window from an aggregation below, and it is not made anew."""
    if plan.kind == "Aggregate":
        return True
    if plan.kind == "Union":
        place = [each.id for each in plan.output].index(column.id)
        return all(is_brought(child, child.output[place]) for child in plan.children)
    if plan.kind == "Project":
        made = next(each for each in plan.expressions if each.id == column.id)
        return made.unaliased.is_attribute and is_brought(plan.child, made.unaliased)
    return plan.kind in (*_PASSING, "Filter") and is_brought(plan.child, column)


def _take(node: Node, id_: int, kind: str) -> TakenWindow:
    if node.kind == "Project":
        return _of_projection(node, id_, kind)
    if node.kind == "Expand":
        places = [number for number, column in enumerate(node.output) if column.id == id_]
        if places:
            return _window_of(node.first_projection()[places[0]], kind, node.child)
    if node.kind == "Filter":
        if id_ not in node.condition().references:
            return _over(node, _take(node.child, id_, kind))
        if _makes(node.child, id_, kind):
            return _take(node.child, id_, kind)  # Spark's own filter: it drops what is in no window
        raise AnalysisError(
            f"where({node.condition().text}) is about the {kind} and stands before the aggregation, where Tailrace has "
            f"none yet: put it behind the aggregation"
        )
    if node.kind in _PASSING:
        return _over(node, _take(node.child, id_, kind))
    raise AnalysisError(f"the {kind} is made below a {node.kind}, and only a choice of columns or a filter may follow")


def _over(node: Node, below: TakenWindow) -> TakenWindow:
    return replace(below, plan=node.with_child(0, below.plan))


def _of_projection(node: Node, id_: int, kind: str) -> TakenWindow:
    (made,) = (each for each in node.expressions if each.id == id_)
    others = [each for each in node.expressions if each.id != id_]
    definition = made.unaliased
    if not definition.is_attribute:
        return _window_of(definition, kind, node.child.choosing(others))
    for other in others:
        if definition.id in other.references:
            raise AnalysisError(f"{other.text} is made of the {kind} before the aggregation: make it behind that")
    below = _take(node.child, definition.id, kind)
    return replace(below, plan=below.plan.choosing(others))


def _makes(node: Node, id_: int, kind: str) -> bool:
    """Whether a node is where Spark has put the window, and a filter above it Spark's own."""
    if node.kind == "Expand":
        return any(column.id == id_ for column in node.output)
    made = [each for each in node.expressions if each.id == id_] if node.kind == "Project" else []
    return kind == "session_window" and bool(made) and not made[0].unaliased.is_attribute


def _window_of(struct: Expression, kind: str, plan: Node) -> TakenWindow:
    if struct.kind != "CreateNamedStruct" or len(struct.children) != 4:
        raise AnalysisError(f"the {kind} {struct.text} is not as Spark makes them")
    _, start, _, end = struct.children
    if kind == "session_window":
        return _sessions(start, end, plan)
    remainder = next((each for each in start.walk() if each.kind == "Remainder"), None)
    added = next((each for each in end.walk() if each.kind == "Add"), None)
    if remainder is None or added is None:
        raise AnalysisError(f"the {kind} {struct.text} is not as Spark makes them")
    shifted, slide = remainder.children
    size, slide, offset = (each.constant() for each in (added.children[1], slide, shifted.children[1]))
    return TakenWindow(Window("", Micros(size), Micros(slide), Micros(offset % slide)), _time_of(remainder), plan)


def _time_of(expression: Expression) -> Expression:
    """The event time inside, which Spark turns into a number and back."""
    conversions = [each for each in expression.walk() if each.kind == "PreciseTimestampConversion"]
    return conversions[-1].children[0]


def _sessions(start: Expression, end: Expression, plan: Node) -> TakenWindow:
    """Sessions of one gap; or where it is an expression, or as long as the days and months are, of rows' own ends."""
    time, ends = _time_of(start), end
    while ends.kind in _AROUND_ENDS:
        ends = ends.children[0]
    # The gap is added to the time, outermost.
    gap = next(each.children[1] for each in ends.walk() if [c.type_name for c in each.children][1:] == ["interval"])
    months, days, micros = gap.interval() or (0, 0, 0)
    if not months and not days and micros > 0:
        return TakenWindow(SessionWindow("", Micros(micros)), time, plan)
    return TakenWindow(DynamicSessionWindow("", ""), time, plan, ends)
