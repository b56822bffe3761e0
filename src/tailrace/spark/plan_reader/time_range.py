"""What the condition of an outer or semi join says beside its equalities.

Whether a row has a match depends on it, so that bounds must be exact.

Of the parts that it joins with AND, some bound the right row's event time minus the left one's; others are about
columns of one side. There is no place for any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tailrace.errors import AnalysisError
from tailrace.spark.expressions.catalyst import Expression
from tailrace.spark.expressions.places import placed
from tailrace.spark.expressions.plans import Node

_MIRRORED = {
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
}
DAY_US = 86_400_000_000


@dataclass
class ExactCondition:
    """``lower``, ``upper``: of right time minus left time in microseconds, both inclusive; None: no bound.

    ``of_side``: conditions of columns of one side.
    """

    lower: int | None = None
    upper: int | None = None
    of_side: tuple[list[Expression], list[Expression]] = field(default_factory=lambda: ([], []))

    def bound(self, kind: str, apart: int) -> None:
        """The difference is in such a relation to ``apart``."""
        if kind.startswith("GreaterThan"):
            least = apart + (kind == "GreaterThan")
            self.lower = least if self.lower is None else max(self.lower, least)
        else:
            most = apart - (kind == "LessThan")
            self.upper = most if self.upper is None else min(self.upper, most)


def exact_condition(
    node: Node, rest: Expression | None, times: tuple[Expression | None, Expression | None]
) -> ExactCondition:
    """Of a join, where nothing is left over. ``times``: the event times of both sides."""
    found = ExactCondition()
    own = [{column.id for column in child.output} for child in node.children]
    for part in () if rest is None else _parts(rest):
        sides = [number for number in (0, 1) if part.references & own[number]]
        if not part.repeatable:
            with placed(part):
                raise AnalysisError(f"{part.text}, in the condition of a join, would give something else in a replay")
        if len(sides) < 2:
            found.of_side[sides[0] if sides else 0].append(part)
            continue
        bounds = list(_bounds(part, times))
        if not bounds:
            with placed(part):
                raise AnalysisError(
                    f"{part.text}: whether a row of a {node.join_type()} join has a match can depend on equalities, on "
                    f"conditions of one side, and on a range of the two event times in hours or less; for others "
                    f"Tailrace has inner joins"
                )
        for kind, apart in bounds:
            found.bound(kind, apart)
    return found


def _parts(condition: Expression) -> Iterator[Expression]:
    if condition.kind == "And":
        for child in condition.children:
            yield from _parts(child)
    else:
        yield condition


def _bounds(part: Expression, times: tuple[Expression | None, Expression | None]) -> Iterator[tuple[str, int]]:
    """Relations of right time minus left time; none where the part is something else."""
    compared = list(_comparisons(part))
    moments = [(kind, _moment(one), _moment(other)) for kind, one, other in compared]
    left, right = (None if time is None else time.id for time in times)
    for kind, one, other in moments:
        if one is None or other is None:
            return
        if (one[0], other[0]) == (left, right):
            yield _MIRRORED[kind], one[1] - other[1]
        elif (one[0], other[0]) == (right, left):
            yield kind, other[1] - one[1]
        else:
            return


def _comparisons(part: Expression) -> Iterator[tuple[str, Expression, Expression]]:
    if part.kind in _MIRRORED:
        one, other = part.children
        yield part.kind, one, other
    elif part.kind == "Between" and part.children[0].kind == "With":
        both, subject = part.children[0].children
        for each in both.children:
            yield each.kind, subject.children[0], each.children[1]


def _moment(expression: Expression) -> tuple[int, int] | None:
    """The id of the column that it is a constant time away from, and how far in microseconds."""
    if expression.is_attribute:
        return expression.id, 0
    if expression.kind == "Cast" and expression.type_name == expression.children[0].type_name:
        return _moment(expression.children[0])
    if expression.kind == "DatetimeSub":
        return _moment(expression.children[0])
    if expression.kind != "TimestampAddInterval":
        return None
    start, interval = expression.children
    found, apart = _moment(start), interval_us(interval, exact_days=_has_even_days(expression))
    return None if found is None or apart is None else (found[0], found[1] + apart)


def interval_us(interval: Expression, *, exact_days: bool) -> int | None:
    """A constant interval in microseconds; None where it is none, or of a length that depends on the calendar."""
    if interval.type_name == "interval":
        parts = interval.interval()
        if parts is None:
            return None
        months, days, micros = parts
        return None if months or (days and not exact_days) else days * DAY_US + micros
    micros = interval.constant()
    if not interval.type_name.startswith("interval") or not isinstance(micros, int):
        return None
    return None if abs(micros) >= DAY_US and not exact_days else micros


def _has_even_days(expression: Expression) -> bool:
    """Whether each day is as long as the others, where the expression adds days."""
    return expression.type_name == "timestamp_ntz" or expression.flag("zoneId", "getRules", "isFixedOffset") == "true"
