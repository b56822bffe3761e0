"""Dropping duplicates in a user's words, for ``explain`` and for the refusal of a changed query."""

from __future__ import annotations

from tailrace.api.duration import format_duration
from tailrace.operators.dedup.spec import DeduplicateSpec, Memory
from tailrace.operators.kind import Description
from tailrace.operators.pattern import Pattern, StoreChoice
from tailrace.operators.planning.texts import fields_text, row_parts
from tailrace.operators.planning.windows import undropped_text


def deduplicate_lines(operator: DeduplicateSpec) -> list[str]:
    return [
        f"the first row of each {fields_text(operator.keys)}: the one with the smallest event time of its epoch"
        if operator.time_column is not None
        else f"the first row of each {fields_text(operator.keys)}",
        f"output {fields_text(operator.columns)}",
        f"a key is remembered {_memory(operator)}",
        *_prefetch_lines(operator),
    ]


def _prefetch_lines(operator: DeduplicateSpec) -> list[str]:
    """Where the option prefetch does not do what it says."""
    match operator.memory:
        case Memory.FOREVER:
            return []
        case Memory.KEY_TIME:
            return ["prefetch=on has no effect here: spilled keys are read when their rows are applied"]
        case _:
            return [
                "prefetch has no effect here: in which pane a spilled key lies is not known before its row is applied"
            ]


def deduplicate_parts(operator: DeduplicateSpec) -> dict[str, str]:
    rows = row_parts(operator.keys, operator.columns, operator.time_column)
    return {**rows, "memory of keys": operator.memory.value}


def _memory(operator: DeduplicateSpec) -> str:
    time = operator.time_column
    match operator.memory:
        case Memory.WITHIN:
            delay = format_duration(operator.delay)
            return f"until the watermark reaches the event time of its row and {delay}; then it may come again"
        case Memory.SINCE:
            assert operator.ttl is not None
            span = format_duration(operator.ttl.span)
            return f"until an epoch begins {span} after the one in which its row was given; then it may come again"
        case Memory.KEY_TIME:
            assert time is not None
            return f"until the watermark reaches its {time.name}; rows that come later are late"
        case Memory.FOREVER:
            if not operator.watermarked:
                return "for ever: there is no watermark"
            assert time is not None
            return (
                f"for ever: {time.name} is not among the keys; add it, or use dropDuplicatesWithinWatermark, to let "
                f"the watermark bound the state"
            )


_STORES: dict[Memory, StoreChoice] = {
    Memory.FOREVER: StoreChoice(Pattern.RMW, "a key is looked up for each row and kept for ever: one record a key"),
    Memory.KEY_TIME: StoreChoice(
        Pattern.RMW,
        "a key is looked up for each row: one record a key, by its event time, so that keys go together when the "
        "watermark reaches them",
    ),
    Memory.WITHIN: StoreChoice(
        Pattern.RMW,
        "a key is looked up for each row: one record a key and until when, by that time, so that keys go together when "
        "the watermark reaches it",
    ),
    Memory.SINCE: StoreChoice(
        Pattern.RMW,
        "a key is looked up for each row: one record a key and since when, by that time, so that keys go together when "
        "their time has passed",
    ),
}


DESCRIPTION = Description(
    title=lambda spec: "Drop duplicates",
    lines=deduplicate_lines,
    parts=deduplicate_parts,
    store=lambda spec: _STORES[spec.memory],
    undropped=lambda spec: undropped_text(None, spec.ttl),
)
