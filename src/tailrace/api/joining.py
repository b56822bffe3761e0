"""Checks what a user asks of a join of two streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tailrace.api.columns import check_key, resolve
from tailrace.api.duration import Duration, parse_duration
from tailrace.api.relations import Join, JoinSide, Relation, ValidTo, Watermark, Within
from tailrace.api.windows import AnyWindow, Window
from tailrace.errors import AnalysisError
from tailrace.types import Field

_HOW = {"inner": False, "left": True, "leftouter": True, "left_outer": True}


@dataclass(frozen=True)
class JoinInput:
    source: object
    schema: tuple[Field, ...]
    watermark: Watermark | None


def joined(
    left: JoinInput,
    right: JoinInput,
    on: Sequence[str],
    how: str,
    *,
    within: tuple[Duration | None, Duration | None] | None,
    window: AnyWindow | None,
    valid_to: str | None,
    ttl: Duration | None,
    time_name: str | None,
) -> Join:
    for side in (left, right):
        if isinstance(side.source, Relation):
            raise AnalysisError(
                "join takes two streams as Spark reads them, and one of these is made by an operator of Tailrace: "
                "write its rows to a table first and stream from that, or join before you aggregate"
            )
    sides = _sides(left, right, on)
    given = {"within": within, "window": window, "validTo": valid_to}
    asked = [name for name, value in given.items() if value is not None]
    if len(asked) > 1:
        raise AnalysisError(f"join takes one condition in time, but got {' and '.join(asked)}: keep one of them")
    _check_watermarks(*sides, [*asked, *(["ttl"] if ttl is not None else []), *(["eventTime"] if time_name else [])])
    condition: Within | ValidTo | Window | None = None
    if within is not None:
        condition = _within(within)
    elif window is not None:
        condition = _window(window, *sides)
    elif valid_to is not None:
        condition = _valid_to(valid_to, *sides)
    if isinstance(condition, Window) and time_name is not None:
        raise AnalysisError("join: with a window its column is the rows' event time: remove eventTime")
    return Join(
        left=sides[0],
        right=sides[1],
        condition=condition,
        outer=_outer(how),
        ttl=None if ttl is None else parse_duration(ttl, "join: ttl", zero_ok=True),
        time_name=time_name,
    )


def _outer(how: object) -> bool:
    outer = _HOW.get(how.strip().lower()) if isinstance(how, str) else None
    if outer is None:
        raise AnalysisError(
            f"join: how must be 'inner' or 'left_outer' for two streams, but is {how!r}: for a right outer join swap "
            f"the two sides"
        )
    return outer


def _sides(left: JoinInput, right: JoinInput, on: Sequence[str]) -> tuple[JoinSide, JoinSide]:
    if not on:
        raise AnalysisError("join needs at least one column that both sides have: .join(other, 'auction')")
    left_keys, right_keys = (
        tuple(resolve(name, side.schema, f"join: on, in the {which} stream") for name in on)
        for which, side in (("left", left), ("right", right))
    )
    for one, other in zip(left_keys, right_keys, strict=True):
        check_key(one, "join")
        if one.type != other.type:
            raise AnalysisError(
                f"join: column {one.name!r} is a {one.type} on the left and a {other.type} on the right: cast one "
                f"before tailrace.stream(...)"
            )
    left_rest, right_rest = (
        tuple(field for field in side.schema if field not in keys)
        for side, keys in ((left, left_keys), (right, right_keys))
    )
    for field in (*left_rest, *right_rest):
        if field.type.kind is None:
            raise AnalysisError(
                f"join: column {field.name!r} is a {field.type}, which cannot be kept: leave it out or cast it before "
                f"tailrace.stream(...)"
            )
    names = {field.name.lower() for field in (*left_keys, *left_rest)}
    twice = [field.name for field in right_rest if field.name.lower() in names]
    if twice:
        raise AnalysisError(
            f"join: both sides have {', '.join(twice)}, and a joined row can have each name once: rename them on one "
            f"side before tailrace.stream(...), for example with df.withColumnRenamed"
        )
    return (
        JoinSide(left.source, left_keys, left_rest, left.watermark),
        JoinSide(right.source, right_keys, right_rest, right.watermark),
    )


def _check_watermarks(left: JoinSide, right: JoinSide, needing: list[str]) -> None:
    with_one = [which for which, side in (("left", left), ("right", right)) if side.watermark is not None]
    if len(with_one) == 1:
        raise AnalysisError(
            f"join: only the {with_one[0]} stream has a watermark, and time goes on by the slower of both: call "
            f".withWatermark on the other one too"
        )
    if needing and not with_one:
        raise AnalysisError(
            f"join: {needing[0]} needs the event time of both streams: call .withWatermark('ts', '10 seconds') on each"
        )
    if left.watermark is not None and right.watermark is not None:
        one, other = left.watermark.column, right.watermark.column
        if one.type != other.type:
            raise AnalysisError(
                f"join: event time {one.name!r} is a {one.type} and {other.name!r} a {other.type}: cast one before "
                f"tailrace.stream(...)"
            )


def _within(bounds: object) -> Within:
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise AnalysisError(
            f"join: within takes a pair (lower, upper), for example ('-5 seconds', '10 minutes'), but got {bounds!r}"
        )
    lower, upper = (
        None if bound is None else parse_duration(bound, f"join: within, {which} bound", zero_ok=True, negative_ok=True)
        for bound, which in zip(bounds, ("lower", "upper"), strict=True)
    )
    if lower is None and upper is None:
        raise AnalysisError("join: within has no bound at all: leave it out for a join by key alone")
    if lower is not None and upper is not None and lower > upper:
        raise AnalysisError(f"join: within=({bounds[0]!r}, {bounds[1]!r}) has its lower bound above the upper one")
    return Within(lower, upper)


def _window(window: object, left: JoinSide, right: JoinSide) -> Window:
    if not isinstance(window, Window):
        raise AnalysisError(f"join: window takes tailrace.window(...), but got {window!r}")
    assert left.watermark is not None and right.watermark is not None
    times = [left.watermark.column.name, right.watermark.column.name]
    if window.time_column.lower() not in {name.lower() for name in times}:
        raise AnalysisError(
            f"join: the window is over {window.time_column!r}, but event time is {' and '.join(times)}: name one of "
            f"these"
        )
    return replace(window, time_column=times[0])


def _valid_to(name: str, left: JoinSide, right: JoinSide) -> ValidTo:
    found = resolve(name, (*left.columns, *right.columns), "join: validTo")
    if not found.type.is_time:
        raise AnalysisError(
            f"join: validTo {found.name!r} is a {found.type} and must be a timestamp: cast it before "
            f"tailrace.stream(...)"
        )
    return ValidTo(found.name, found in right.columns)
