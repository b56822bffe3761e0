"""What the report's charts share: a chart, colours, labels. Pure."""

from __future__ import annotations

import html
import textwrap
from dataclasses import dataclass
from typing import Any, TypeGuard

PARTS = ("#0d9488", "#3b82f6", "#e8772e", "#8b5cf6", "#ca8a04", "#db2777", "#64748b", "#65a30d", "#06b6d4", "#a16207")
"""Colours of things that nothing else distinguishes."""
COLOURS = {
    "tailrace": "#0d9488",
    "spark-rocksdb": "#e8772e",
    "spark-memory": "#8b5cf6",
    "shuffle-floor": "#94a3b8",
    "transfer-floor": "#cbd5e1",
    "paper": "#cbd5e1",
    # Commit modes.
    "sync": "#3b82f6",
    "async-checkpoint": "#8b5cf6",
    "buffered": "#ca8a04",
    "async": "#0d9488",
    "async-remote-logs": "#65a30d",
    "async-free-store": "#94a3b8",
    # Ways to cache and to prefetch.
    "lru": "#94a3b8",
    "clock": "#ca8a04",
    "async-io": "#3b82f6",
    "hints": "#0d9488",
    "on": "#0d9488",
    "off": "#94a3b8",
}
"""Of engines and of their variants, the same in all charts."""


@dataclass(frozen=True)
class Chart:
    title: str
    caption: str
    figure: dict[str, Any]
    """As ``Plotly.newPlot`` takes it."""
    wide: bool = False


def colour(name: str) -> str:
    """Of an engine or a variant; of one that has none, always the same of ``PARTS``."""
    return COLOURS.get(name) or PARTS[sum(name.encode()) % len(PARTS)]


def labelled(text: str) -> str:
    """A name beside an axis: escaped, and broken where it is long."""
    return "<br>".join(html.escape(line) for line in textwrap.wrap(text, 18) or [""])


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
