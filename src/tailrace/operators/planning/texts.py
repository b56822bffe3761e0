"""Columns in a user's words. Different ones must read differently: a changed query is found out by these."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.types import Field


def field_text(field: Field | None) -> str:
    """
    >>> from tailrace.types import BIGINT
    >>> field_text(Field("auction", BIGINT))
    'auction bigint'
    """
    return "none" if field is None else f"{field.name} {field.type}"


def row_parts(keys: Iterable[Field], columns: Iterable[Field], time_column: Field | None) -> dict[str, str]:
    """What may not change of the rows that an operator passes on. See ``Description.parts``."""
    return {
        "keys": fields_text(keys),
        "columns": fields_text(columns),
        "event time column": field_text(time_column),
    }


def time_parts(time_column: Field | None, time_name: str | None) -> dict[str, str]:
    """Event time of the rows that a function gets, and of those that it gives."""
    return {"event time column": field_text(time_column), "event time of the output": time_name or "none"}


def fields_text(fields: Iterable[Field], none: str = "none") -> str:
    return ", ".join(map(field_text, fields)) or none
