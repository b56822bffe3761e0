"""What the report's charts share: a chart, colours, labels. Pure."""

from __future__ import annotations

import html
import textwrap
from dataclasses import dataclass
from typing import Any, TypeGuard

PARTS = ("#0d9488", "#3b82f6", "#e8772e", "#8b5cf6", "#ca8a04", "#db2777", "#64748b", "#65a30d", "#06b6d4", "#a16207")
"""Colours of things that nothing else distinguishes."""


@dataclass(frozen=True)
class Chart:
    title: str
    caption: str
    figure: dict[str, Any]
    """As ``Plotly.newPlot`` takes it."""
    wide: bool = False


def labelled(text: str) -> str:
    """A name beside an axis: escaped, and broken where it is long."""
    return "<br>".join(html.escape(line) for line in textwrap.wrap(text, 18) or [""])


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
