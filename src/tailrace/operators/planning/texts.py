"""Columns and windows in a user's words. Different ones must read differently: a changed query is told by these."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.api.duration import format_duration
from tailrace.operators.windows import WindowSpec
from tailrace.types import Field


def field_text(field: Field | None) -> str:
    """
    >>> from tailrace.types import BIGINT
    >>> field_text(Field("auction", BIGINT))
    'auction bigint'
    """
    return "none" if field is None else f"{field.name} {field.type}"


def fields_text(fields: Iterable[Field], none: str = "none") -> str:
    return ", ".join(map(field_text, fields)) or none


def window_text(window: WindowSpec | None) -> str:
    if window is None:
        return "none"
    if window.lasts is not None:
        return f"{format_duration(window.lasts)} every {format_duration(window.slide)}, as rows bring it"
    text = format_duration(window.size)
    text += ", tumbling" if window.tumbling else f" every {format_duration(window.slide)}"
    return f"{text}, starting at {format_duration(window.offset)}" if window.offset else text
