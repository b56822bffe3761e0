"""Event time of a query: what was seen, what is late, what closes. Pure.

Two rules. ``tailrace``: windows close by the largest event time seen, this epoch's rows included. ``spark``: by what
was seen before this epoch, in milliseconds and never below 1970, as Spark's own aggregation does between
consecutive batches of data. Under both, rows are late by the watermark that the epoch before closed with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.api.options import WatermarkPolicy, WatermarkRule
from tailrace.ids import MIN_MICROS
from tailrace.plan.physical import PhysicalPlan
from tailrace.spark.tasks.ingest import Receipt


@dataclass(frozen=True)
class Watermark:
    """As of the end of an epoch. ``closed``: windows that end at or before it have closed."""

    times_max: tuple[int, ...]  # the largest event time seen, by input
    closed: int

    def to_json(self) -> dict[str, Any]:
        return {"times_max": list(self.times_max), "closed": self.closed}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any], rule: WatermarkRule, inputs: int) -> Watermark:
        """As an epoch has recorded it; where none has, before the first."""
        if not raw:
            return cls((MIN_MICROS,) * inputs, 0 if rule is WatermarkRule.SPARK else MIN_MICROS)
        return cls(tuple(raw["times_max"]), raw["closed"])

    def after(
        self,
        times_max: Sequence[int],
        delays: Sequence[int],
        rule: WatermarkRule,
        policy: WatermarkPolicy = WatermarkPolicy.MIN,
    ) -> Watermark:
        """The watermark after an epoch whose rows reached ``times_max``: that of the input that ``policy`` names."""
        seen = tuple(map(max, self.times_max, times_max))
        times = self.times_max if rule is WatermarkRule.SPARK else seen
        marks = [_mark(time, delay, rule) for time, delay in zip(times, delays, strict=True) if time != MIN_MICROS]
        if not marks or (policy is WatermarkPolicy.MIN and len(marks) < len(times)):
            return Watermark(seen, self.closed)
        return Watermark(seen, max(self.closed, *([min(marks)] if policy is WatermarkPolicy.MIN else marks)))


def _mark(time: int, delay: int, rule: WatermarkRule) -> int:
    """So far behind the largest event time of an input."""
    return time // 1000 * 1000 - delay // 1000 * 1000 if rule is WatermarkRule.SPARK else time - delay


def lagging(watermark: int, lag: int) -> int:
    """The watermark of an operator that lags so far behind the first one."""
    return watermark if watermark == MIN_MICROS else watermark - lag


def times_seen(plan: PhysicalPlan, times_max: Sequence[int], receipts: Sequence[Receipt]) -> tuple[int, ...]:
    """The largest event time seen, by the plan's inputs. ``times_max``: before these tasks have ingested them."""
    seen = list(times_max)
    inputs = {stage.operator.name: stage.inputs for stage in plan.stages}
    for receipt in receipts:
        for number, time in zip(inputs[receipt.operator], receipt.times_max, strict=True):
            if number is not None:
                seen[number] = max(seen[number], time)
    return tuple(seen)
