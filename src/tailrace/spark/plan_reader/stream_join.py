"""A join of two streams on equal columns, with a range of their event times in its condition.

The bounds of that range are those by which Spark forgets rows. They let no pair through that the condition does not,
but for their unit, milliseconds: the condition itself is a filter behind the operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.api.relations import Join
from tailrace.api.stream import Stream
from tailrace.errors import AnalysisError
from tailrace.spark.plan_reader.catalyst import EqualKeys, Expression, Node
from tailrace.spark.plan_reader.reading import Made, Reading, check_one_watermark

_SLACK_MS = 2
"""Spark computes bounds in milliseconds, and cuts what is finer off."""


@dataclass(frozen=True)
class _Side:
    stream: Stream
    names: dict[int, str]  # of columns that are passed on, by their ids


def read_stream_join(node: Node, reading: Reading) -> Made:
    kind = node.join_type()
    if kind != "Inner":
        raise AnalysisError(f"a {kind} join of two streams: Tailrace reads inner joins from a plain query")
    equal = node.equal_keys()
    if equal is None:
        raise AnalysisError("a join of two streams needs an equality of their columns in its condition")
    needed = reading.needed | (equal.rest.references if equal.rest is not None else set())
    within = _within(node, equal)
    left, right = (
        _side(number, node, keys, needed, reading, timed=within is not None)
        for number, keys in enumerate((equal.left, equal.right))
    )
    on = [reading.name("k", number) for number in range(len(equal.left))]
    made = left.stream.join(right.stream, on, within=within)
    relation = made.relation
    assert isinstance(relation, Join)
    leaf = [
        (column, side.names[column.id])
        for side, child in zip((left, right), node.children, strict=True)
        for column in child.output
        if column.id in side.names
    ]
    return Made(relation, tuple(leaf), None, equal.rest)


def _side(
    number: int,
    node: Node,
    keys: Sequence[Expression],
    needed: frozenset[int] | set[int],
    reading: Reading,
    *,
    timed: bool,
) -> _Side:
    """One input: its keys as ``k0``, ``k1`` and so on, and the columns that something above reads."""
    child, own = node.children[number], reading.columns(prefix="lr"[number])
    names: dict[int, str] = {}
    for place, key in enumerate(keys):
        own.check(key)
        own.make(key.column(), key.text, reading.name("k", place))
        if key.is_attribute:
            names.setdefault(key.id, reading.name("k", place))
    for column in child.output:
        if column.id in needed and column.id not in names:
            names[column.id] = own.take(column)
    time = next((column for column in child.output if column.delay_ms is not None), None)
    event_time = None
    if timed and time is not None and time.delay_ms is not None:
        check_one_watermark(child)
        event_time = own.take(time), time.delay_ms
    return _Side(reading.stream(child, own, event_time), names)


def _within(node: Node, equal: EqualKeys) -> tuple[str | None, str | None] | None:
    """Bounds of right time minus left time, as Tailrace's join takes them; None: neither side has a watermark."""
    delays = [[column for column in child.output if column.delay_ms is not None] for child in node.children]
    if not any(delays):
        return None
    if not all(delays):
        raise AnalysisError(
            "a join of two streams of which one has a watermark: time goes on by the slower of both, so call "
            "withWatermark on both or on neither"
        )
    upper, lower = (node.state_bound_ms(side) for side in (0, 1))
    if upper is None and lower is None:
        raise AnalysisError(
            "a join of two streams with watermarks and without a range of their event times in the condition keeps "
            "every row for ever: add a range, or remove both watermarks"
        )
    return (
        None if lower is None else f"{lower - _SLACK_MS} milliseconds",
        None if upper is None else f"{_SLACK_MS - upper} milliseconds",
    )
