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


def fields_text(fields: Iterable[Field], none: str = "none") -> str:
    return ", ".join(map(field_text, fields)) or none
