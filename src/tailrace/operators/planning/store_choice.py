"""Which store keeps an operator's state, and why: what ``explain`` quotes."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.operators.pattern import Pattern


@dataclass(frozen=True)
class StoreChoice:
    pattern: Pattern | None  # None: no state is kept
    reason: str
    by_user: bool = False
