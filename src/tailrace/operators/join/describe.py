"""A join in a user's words, for ``explain`` and for the refusal of a changed query."""

from __future__ import annotations

from tailrace.api.duration import format_duration
from tailrace.ids import Micros
from tailrace.operators.join.spec import LEFT, RIGHT, JoinKind, JoinSpec
from tailrace.operators.kind import Description
from tailrace.operators.pattern import Pattern, StoreChoice
from tailrace.operators.planning.texts import fields_text
from tailrace.operators.windows.any_window import window_text

_FOR_EVER = "for ever"


def join_lines(join: JoinSpec) -> list[str]:
    return [
        f"{join.how.value.replace('_', ' ')} join on {fields_text(join.keys)}",
        f"rows meet {condition_text(join)}",
        f"left: {fields_text(join.left, 'only keys')}",
        f"right: {fields_text(join.right, 'only keys')}",
        *_lives(join),
    ]


def join_parts(join: JoinSpec) -> dict[str, str]:
    return {
        "keys": fields_text(join.keys),
        "left columns": fields_text(join.left),
        "right columns": fields_text(join.right),
        "how": join.how.value,
        "condition": condition_text(join),
        "ttl": "none" if join.ttl is None else format_duration(join.ttl),
        "event time": "none" if join.times is None else f"{' and '.join(join.times)} {join.time_type}",
    }


def condition_text(join: JoinSpec) -> str:
    match join.kind:
        case JoinKind.INTERVAL:
            return f"where right time - left time is {_bounds(join.lower, join.upper)}"
        case JoinKind.WINDOW:
            return f"in a window: {window_text(join.window)}, in column {join.window_name}"
        case JoinKind.CONTINUOUS:
            side = "left" if join.valid_side == LEFT else "right"
            return f"while the {side} one is valid, from its event time until {join.valid_to}"
        case JoinKind.TTL:
            return "whenever their keys are equal"


def _bounds(lower: Micros | None, upper: Micros | None) -> str:
    if lower is None or upper is None:
        return f"at least {_span(lower)}" if upper is None else f"at most {_span(upper)}"
    return f"from {_span(lower)} to {_span(upper)}"


def _span(span: Micros | None) -> str:
    assert span is not None
    return format_duration(span)


def _lives(join: JoinSpec) -> list[str]:
    """How long rows are kept."""
    if not join.watermarked:
        return ["a row is kept for ever: there is no watermark"]
    if join.window is not None:
        return ["a row is kept until its last window ends"]
    left, right = (_life(join, side) for side in (LEFT, RIGHT))
    if left == right == _FOR_EVER:
        return [f"a row is kept {left}: give the join a ttl, or a condition in time"]
    if left == right:
        return [f"a row is kept {left}"]
    return [f"a left row is kept {left}", f"a right row is kept {right}"]


def _life(join: JoinSpec, side: int) -> str:
    life = join.life(side)
    if join.kind is JoinKind.CONTINUOUS and side == join.valid_side:
        most = "" if life is None else f", at most until the watermark is {format_duration(life)} after its time"
        return f"while it is valid{most}"
    if life is None:
        return _FOR_EVER
    if life <= 0:
        return (
            f"until the watermark is {format_duration(Micros(-life))} before its time" if life else "until it is late"
        )
    return f"until the watermark is {format_duration(life)} after its time"


_STORES: dict[JoinKind, StoreChoice] = {
    JoinKind.WINDOW: StoreChoice(
        Pattern.AAR,
        "pairs are made when a window ends, of all keys together: rows of both sides are appended by window",
    ),
    JoinKind.INTERVAL: StoreChoice(
        Pattern.AUR, "rows of both sides are appended by key and time, and looked up when a row of the other side comes"
    ),
    JoinKind.CONTINUOUS: StoreChoice(
        Pattern.AUR,
        "rows of both sides are appended by key and end of validity, and looked up when a row of the other side comes",
    ),
    JoinKind.TTL: StoreChoice(
        Pattern.AUR, "rows of both sides are appended by key, and looked up when a row of the other side comes"
    ),
}


DESCRIPTION = Description(
    title=lambda spec: "Join",
    progress_name=lambda spec: str(spec.kind).replace("_", " "),
    lines=join_lines,
    parts=join_parts,
    store=lambda spec: _STORES[spec.kind],
)
