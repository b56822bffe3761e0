"""Event time of one operator: what was seen, what is late, what closes. Pure.

Two rules. ``tailrace``: windows close by the largest event time seen, this epoch's rows included. ``spark``: by what
was seen before this epoch, in whole milliseconds and never below 1970, as Spark's own aggregation does between
consecutive batches of data. Under both, rows are late by the watermark that the epoch before closed with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.api.options import WatermarkRule
from tailrace.ids import MIN_MICROS


@dataclass(frozen=True)
class Watermark:
    """As of the end of an epoch. ``closed``: windows that end at or before it have closed."""

    time_max: int
    closed: int

    def to_json(self) -> dict[str, Any]:
        return {"time_max": self.time_max, "closed": self.closed}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any], rule: WatermarkRule) -> Watermark:
        if not raw:
            return cls(MIN_MICROS, 0 if rule is WatermarkRule.SPARK else MIN_MICROS)
        return cls(raw["time_max"], raw["closed"])

    def after(self, time_max: int, delay: int, rule: WatermarkRule) -> Watermark:
        """The watermark after an epoch whose rows reached ``time_max``."""
        seen = max(self.time_max, time_max)
        basis = self.time_max if rule is WatermarkRule.SPARK else seen
        if basis == MIN_MICROS:
            return Watermark(seen, self.closed)
        mark = basis - delay
        if rule is WatermarkRule.SPARK:
            mark = basis // 1000 * 1000 - delay // 1000 * 1000
        return Watermark(seen, max(self.closed, mark))
