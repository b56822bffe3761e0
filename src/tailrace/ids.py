"""The numbers that have names. They import nothing of ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

Epoch = NewType("Epoch", int)
"""Spark's batch id. ``NO_EPOCH`` is the state before the first one."""

RunId = NewType("RunId", str)
"""One start of a query: 16 hex digits. A restart has a new one."""

Micros = NewType("Micros", int)
"""Event time, or a span of it, in microseconds (since 1970-01-01 UTC where it is a point)."""

NO_EPOCH = Epoch(-1)

MIN_MICROS = Micros(-(2**63))
"""The watermark before any row was seen."""


@dataclass(frozen=True, order=True)
class Attempt:
    """Where staged rows belong. Ordered so that a later try of an epoch is greater."""

    epoch: int
    try_: int
