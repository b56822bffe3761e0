"""Checks what a user asks of a join of two streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tailrace.api.columns import Column, check_key, resolve
from tailrace.api.duration import Duration, parse_duration
from tailrace.api.relations import (
    How,
    Join,
    JoinCondition,
    JoinSide,
    OutputMode,
    Relation,
    ValidTo,
    Watermark,
    Within,
)
from tailrace.api.windows import AnyWindow, CountWindow, Window
from tailrace.errors import AnalysisError
from tailrace.ids import Micros
from tailrace.types import Field

_HOW: dict[str, How] = {
    "inner": "inner",
    "left": "left_outer",
    "leftouter": "left_outer",
    "right": "right_outer",
    "rightouter": "right_outer",
    "outer": "full_outer",
    "full": "full_outer",
    "fullouter": "full_outer",
    "semi": "left_semi",
    "leftsemi": "left_semi",
}
"""By PySpark's names, in small letters and without underscores, which it does not look at."""
_REFUSED = {
    "anti": "Spark has no left anti join of two streams either. Use how='left_outer' and, where the rows are written, "
    "keep those in which the right columns are null",
    "leftanti": "Spark has no left anti join of two streams either. Use how='left_outer' and, where the rows are "
    "written, keep those in which the right columns are null",
    "cross": "every row would be kept for ever and meet every other. Name the columns that must be equal, with "
    "how='inner'",
}
_OWN_NAMES = ("__side", "__time")  # of the columns that both sides are brought to
_SPAN_MAX = Micros(2**60)  # so that times can be computed with in 64 bits


@dataclass(frozen=True)
class JoinInput:
    source: object
    schema: tuple[Field, ...]
    watermark: Watermark | None


def key_columns(on: object) -> list[object]:
    """The columns to join on, as a user may write them: one, or several."""
    given: list[object] = list(on) if isinstance(on, list | tuple) else [on]
    if not given:
        raise AnalysisError("join needs at least one column that both sides have: .join(other, 'auction')")
    for name in given:
        if not isinstance(name, str | Column):
            raise AnalysisError(
                f"join: on takes the name of a column that both sides have, a Column of such, or a list of these, but "
                f"got {name!r} ({type(name).__name__})"
            )
    return given


def stream_join(
    left: JoinInput,
    right: JoinInput,
    on: Sequence[str],
    how: object,
    *,
    within: tuple[Duration | None, Duration | None] | None,
    window: AnyWindow | None,
    valid_to: str | None,
    ttl: Duration | None,
    time_name: str | None,
) -> Join:
    wanted = _how(how)
    for side in (left, right):
        if isinstance(side.source, Relation):
            _check_made(side.source)
    sides = _sides(left, right, on, kept=() if valid_to is None else (valid_to,), semi=wanted == "left_semi")
    if time_name is not None and (not isinstance(time_name, str) or not time_name):
        raise AnalysisError(f"join: eventTime names a new output column, but is {time_name!r}: eventTime='at'")
    given = {"within": within, "window": window, "validTo": valid_to}
    asked = [name for name, value in given.items() if value is not None]
    if len(asked) > 1:
        raise AnalysisError(f"join takes one condition in time, but got {' and '.join(asked)}: keep one of them")
    _check_watermarks(*sides, [*asked, *(["ttl"] if ttl is not None else []), *(["eventTime"] if time_name else [])])
    made = Join(
        left=sides[0],
        right=sides[1],
        condition=_condition(within, window, valid_to, sides),
        how=wanted,
        ttl=None if ttl is None else _span(parse_duration(ttl, "join: ttl", zero_ok=True), ttl, "join: ttl"),
        time_name=time_name,
    )
    _check_fitting(made)
    return made


def _check_made(source: Relation) -> None:
    """Rows of operators can be joined where they are final, and come with plain columns."""
    refusal = source.refusal(OutputMode.APPEND)
    if refusal is not None:
        raise AnalysisError(f"join takes rows that are final: {refusal}")
    window = source.window
    if window is not None and not isinstance(window, CountWindow):
        raise AnalysisError(
            f"join: {window.name!r} is a struct of a window's bounds, which cannot be kept in a row: make columns of "
            f"it first, and keep its last moment as event time, with .withColumn('at', F.window_time({window.name!r}))"
            f".withColumn('start', F.col('{window.name}.start')).drop({window.name!r})"
        )


def _condition(within: object, window: object, valid_to: str | None, sides: tuple[JoinSide, JoinSide]) -> JoinCondition:
    if within is not None:
        return _within(within)
    if window is not None:
        return _window(window, *sides)
    return None if valid_to is None else _valid_to(valid_to, *sides)


def _check_fitting(join: Join) -> None:
    """Refuse what would be given in vain."""
    if join.window is not None and join.time_name is not None:
        raise AnalysisError(
            f"join: with a window, column {join.window.name!r} is the event time of the pairs: remove eventTime"
        )
    if join.window is not None and join.ttl is not None:
        raise AnalysisError("join: with a window, rows are kept until their last window ends: remove ttl")
    condition = join.condition
    for side, bound, given_alone in (
        ("left", "an upper bound", ("left_outer", "full_outer")),
        ("right", "a lower bound", ("right_outer", "full_outer")),
    ):
        unbounded = isinstance(condition, Within) and None is (condition.upper if side == "left" else condition.lower)
        if join.how in given_alone and join.ttl is None and (condition is None or unbounded):
            least = f"{bound} in within, or a ttl" if condition is not None else "a ttl, or a condition in time"
            raise AnalysisError(
                f"join: a match for a {side} row may come at any time, so that none would ever be given without one: "
                f"how={join.how!r} needs {least} (ttl='1 hour'; both streams then need .withWatermark), or use "
                f"how='inner'"
            )


def _how(how: object) -> How:
    name = how.strip().lower().replace("_", "") if isinstance(how, str) else ""
    if name in _REFUSED:
        raise AnalysisError(f"join: how={how!r} is not supported for two streams: {_REFUSED[name]}")
    if name not in _HOW:
        names = ", ".join(map(repr, dict.fromkeys(_HOW.values())))
        raise AnalysisError(f"join: how must be one of {names} for two streams, but is {how!r}")
    return _HOW[name]


def _sides(
    left: JoinInput, right: JoinInput, on: Sequence[str], *, kept: Sequence[str], semi: bool
) -> tuple[JoinSide, JoinSide]:
    """``kept``: columns that are needed, though a semi join, which gives left rows alone, may not show them."""
    left_keys, right_keys = (
        tuple(resolve(name, side.schema, f"join: on, in the {which} stream") for name in on)
        for which, side in (("left", left), ("right", right))
    )
    for one, other in zip(left_keys, right_keys, strict=True):
        check_key(one, "join", "a key")
        if left_keys.count(one) > 1:
            raise AnalysisError(f"join: on names column {one.name!r} twice: once is enough")
        if one.type != other.type:
            raise AnalysisError(
                f"join: column {one.name!r} is a {one.type} on the left and a {other.type} on the right: cast one first"
            )
    left_rest, right_rest = (
        tuple(field for field in side.schema if field not in keys)
        for side, keys in ((left, left_keys), (right, right_keys))
    )
    if semi:
        needed = {name.lower() for name in kept}
        right_rest = tuple(field for field in right_rest if field.name.lower() in needed)
    for field in (*left_keys, *left_rest, *right_rest):
        if field.type.kind is None:
            raise AnalysisError(
                f"join: column {field.name!r} is a {field.type}, which cannot be kept: leave it out or cast it first"
            )
        if field.name.lower() in _OWN_NAMES:
            raise AnalysisError(
                f"join: column {field.name!r} has a name that Tailrace needs for itself: rename it first"
            )
    names = {field.name.lower() for field in (*left_keys, *left_rest)}
    twice = [field.name for field in right_rest if field.name.lower() in names]
    if twice:
        raise AnalysisError(
            f"join: both sides have {', '.join(twice)}, and a joined row can have each name once: rename them on one "
            f"side first, for example with .withColumnRenamed"
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
                f"join: event time {one.name!r} is a {one.type} and {other.name!r} a {other.type}: cast one first"
            )


def _within(bounds: object) -> Within:
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise AnalysisError(
            f"join: within takes a pair (lower, upper), for example ('-5 seconds', '10 minutes'), but got {bounds!r}"
        )
    lower, upper = (
        None if bound is None else _span(parse_duration(bound, where, zero_ok=True, negative_ok=True), bound, where)
        for bound, where in zip(bounds, ("join: within, lower bound", "join: within, upper bound"), strict=True)
    )
    if lower is None and upper is None:
        raise AnalysisError("join: within has no bound at all: give one, or leave it out for a join by key alone")
    if lower is not None and upper is not None and lower > upper:
        raise AnalysisError(
            f"join: within=({bounds[0]!r}, {bounds[1]!r}) has its lower bound above the upper one: swap them"
        )
    return Within(lower, upper)


def _span(micros: Micros, given: Duration, where: str) -> Micros:
    if abs(micros) > _SPAN_MAX:
        raise AnalysisError(f"{where} is too long: {given!r} is more than 36,000 years: leave it out for no bound")
    return micros


def _window(window: object, left: JoinSide, right: JoinSide) -> Window:
    if not isinstance(window, Window):
        raise AnalysisError(
            f"join: window takes tailrace.window('ts', '10 seconds'), but got {window!r}: sessions of two streams do "
            f"not end together, use within=(lower, upper) for rows that are near each other"
        )
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
    side = right if found in right.columns else left
    assert side.watermark is not None
    time = side.watermark.column
    if found.type != time.type:
        raise AnalysisError(
            f"join: validTo {found.name!r} is a {found.type} and event time {time.name!r} a {time.type}, and they are "
            f"compared: cast one first"
        )
    if found == time:
        raise AnalysisError(
            f"join: validTo {found.name!r} is the event time itself, so that no row would ever be valid: name the "
            f"column with the end of the validity"
        )
    return ValidTo(found.name, side is right)
