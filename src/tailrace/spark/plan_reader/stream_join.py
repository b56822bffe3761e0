"""A join of two streams on equal columns, with a range of their event times in its condition.

Of an inner join, the bounds of that range are those by which Spark forgets rows. They let no pair through that the
condition does not, but for their unit, milliseconds: the condition itself is a filter behind the operator. In other
joins a row is given for want of a match too, so that the operator itself must know exactly what matches
(``time_range``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import count

from pyspark.sql import Column
from pyspark.sql import functions as F

from tailrace.api.relations import Join
from tailrace.api.stream import Stream
from tailrace.errors import AnalysisError
from tailrace.spark.expressions.catalyst import Expression
from tailrace.spark.expressions.columns import Columns
from tailrace.spark.expressions.plans import EqualKeys, Node
from tailrace.spark.plan_reader.reading import Made, Name, Reading
from tailrace.spark.plan_reader.time_range import DAY_US, ExactCondition, exact_condition

_BOUNDS = ("start", "end")
_SLACK_MS = 2
"""Spark computes bounds in milliseconds, and cuts what is finer off."""
_CLOCK_CHANGE_MS = 3 * 3_600_000
"""Where clocks change, days differ in length by less, and Spark's bounds are of days of 24 hours."""
_HOW = {
    "Inner": "inner",
    "LeftOuter": "left_outer",
    "RightOuter": "right_outer",
    "FullOuter": "full_outer",
    "LeftSemi": "left_semi",
}
_GIVEN_ALONE = {"LeftOuter": (0,), "RightOuter": (1,), "FullOuter": (0, 1)}
"""The sides whose rows are given though they match nothing."""
_Within = tuple[str | None, str | None]


@dataclass(frozen=True)
class _Side:
    stream: Stream
    names: dict[int, Name]  # of columns that are passed on, by their ids


@dataclass(frozen=True)
class _Asked:
    """What is asked of both sides. ``conditions``: of one side's columns, by side; rows without them match nothing."""

    node: Node
    equal: EqualKeys
    times: tuple[Expression | None, Expression | None]
    within: _Within | None
    conditions: tuple[list[Expression], list[Expression]]
    needed: Collection[int]


def read_stream_join(node: Node, reading: Reading) -> Made:
    kind = node.join_type()
    if kind not in _HOW:
        raise AnalysisError(f"a {kind} join of two streams: neither Tailrace nor Spark has it")
    equal = node.equal_keys()
    if equal is None:
        raise AnalysisError("a join of two streams needs an equality of their columns in its condition")
    times = _event_times(node, equal)
    _check_times(times)
    if kind == "Inner":
        rest, exact = equal.rest, ExactCondition()
        within = None if times[0] is None else _sparks_bounds(node)
    else:
        rest, exact = None, exact_condition(node, equal.rest, times)
        within = None if exact.lower is None and exact.upper is None else _exact_bounds(exact)
    if times[0] is not None and within is None:
        within = _of_equal_times(equal, times)
    for side in _GIVEN_ALONE.get(kind, ()):
        _check_conditions_alone(exact.of_side[side], times[side])
    needed = reading.needed | (rest.references if rest is not None else set())
    asked = _Asked(node, equal, times, within, exact.of_side, needed)
    left, right = (_side(number, asked, reading) for number in (0, 1))
    on = [reading.name("k", number) for number in range(sum(len(_parts(key)) for key in equal.left))]
    made = left.stream.join(right.stream, on, _HOW[kind], within=within)
    relation = made.relation
    assert isinstance(relation, Join)
    names = left.names | right.names
    leaf = [(column, names[column.id]) for column in node.output if column.id in names]
    return Made(relation, tuple(leaf), None, rest)


def _side(number: int, asked: _Asked, reading: Reading) -> _Side:
    """One input: its keys as ``k0``, ``k1`` and so on, and the columns that something above reads."""
    node, kind = asked.node, asked.node.join_type()
    child, own = node.children[number], reading.columns(prefix="lr"[number])
    alone = number in _GIVEN_ALONE.get(kind, ())
    conditions = asked.conditions[number]
    if not alone:
        child = reduce(Node.where, conditions, child)
        conditions = []
    names: dict[int, Name] = {}
    # Keys of the operator have a value in every row: in those of the other side that are given alone as well.
    keeps_keys = not conditions and all(side == number for side in _GIVEN_ALONE.get(kind, ()))
    places = count()
    for key in (asked.equal.left, asked.equal.right)[number]:
        own.check(key)
        made = [
            own.make(_matching(part, conditions), key.text, reading.name("k", next(places))) for part in _parts(key)
        ]
        if key.is_attribute and keeps_keys:
            names.setdefault(key.id, _name(made))
    for condition in conditions:
        own.check(condition)
    shown = kind != "LeftSemi" or number == 0
    for column in child.output:
        if shown and column.id in asked.needed and column.id not in names:
            names[column.id] = own.take(column) if not column.is_window else _taken_window(column, own)
    time, event_time = asked.times[number], None
    if asked.within is not None and time is not None and time.delay_ms is not None:
        event_time = _time_column(time, own), time.delay_ms
    derived = time is not None and time.is_window
    return _Side(reading.stream(child, own, event_time, united=False, derived=derived), names)


def _parts(key: Expression) -> list[Column]:
    """What is compared of a key: of a window, its bounds."""
    return [key.column().getField(part) for part in _BOUNDS] if key.is_window else [key.column()]


def _name(made: Sequence[str]) -> Name:
    return made[0] if len(made) == 1 else (made[0], made[1])


def _taken_window(window: Expression, own: Columns) -> Name:
    own.check(window)
    return _name([own.make(part, window.text) for part in _parts(window)])


def _time_column(time: Expression, own: Columns) -> str:
    """The name of the event time: of a window, its last moment."""
    if not time.is_window:
        return own.take(time)
    own.check(time)
    return own.make(F.window_time(time.column()), time.text)


def _matching(key: Column, conditions: Sequence[Expression]) -> Column:
    """The key, null in rows that can match nothing."""
    if not conditions:
        return key
    return F.when(reduce(Column.__and__, [each.column() for each in conditions]), key)


def _event_times(node: Node, equal: EqualKeys) -> tuple[Expression | None, Expression | None]:
    """Windows where these have to be equal; else of each side the first column."""
    for one, other in zip(equal.left, equal.right, strict=True):
        if all(each.is_window and each.delay_ms is not None for each in (one, other)):
            return one, other
    left, right = ([column for column in child.output if column.delay_ms is not None] for child in node.children)
    return next(iter(left), None), next(iter(right), None)


def _check_times(times: tuple[Expression | None, Expression | None]) -> None:
    if (times[0] is None) != (times[1] is None):
        raise AnalysisError(
            "a join of two streams of which one has a watermark: time goes on by the slower of both, so call "
            "withWatermark on both or on neither"
        )


def _check_conditions_alone(conditions: Sequence[Expression], time: Expression | None) -> None:
    """Spark gives rows that do not meet them at once, also those without a time, which it gives nowhere else."""
    if conditions and time is not None and time.nullable:
        raise AnalysisError(
            f"{conditions[0].text}, in the condition of an outer join, is about the side whose rows are given without "
            f"a match too, and Spark gives those without an event time then: let {time.text} have no nulls, as by "
            f"coalesce"
        )


def _sparks_bounds(node: Node) -> _Within | None:
    """Bounds of right time minus left time, as Tailrace's join takes them."""
    upper, lower = (node.state_bound_ms(side) for side in (0, 1))
    if upper is None and lower is None:
        return None
    return (
        None if lower is None else f"{lower - _slack_ms(lower)} milliseconds",
        None if upper is None else f"{_slack_ms(upper) - upper} milliseconds",
    )


def _slack_ms(bound: int) -> int:
    return _SLACK_MS if abs(bound) < DAY_US // 1000 else _CLOCK_CHANGE_MS


def _exact_bounds(exact: ExactCondition) -> _Within:
    lower, upper = (None if bound is None else f"{bound} microseconds" for bound in (exact.lower, exact.upper))
    return lower, upper


def _of_equal_times(equal: EqualKeys, times: tuple[Expression | None, Expression | None]) -> _Within:
    """Where the event times are among what has to be equal."""
    left, right = times
    assert left is not None and right is not None
    for one, other in zip(equal.left, equal.right, strict=True):
        if one.is_attribute and other.is_attribute and (one.id, other.id) == (left.id, right.id):
            return "0 seconds", "0 seconds"
    raise AnalysisError(
        "a join of two streams with watermarks and without a range of their event times in the condition keeps "
        "every row for ever: add a range, or remove both watermarks"
    )
