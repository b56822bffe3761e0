"""Processing time and expiry of an epoch, beside its watermark. Pure.

Both are recorded with the epoch, so that a replay does exactly the same, whatever the clock shows then, and even if the
time-to-live was changed meanwhile: a change counts from the first epoch that was never durable before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.ids import MIN_MICROS
from tailrace.operators.timers.ttl import Clock
from tailrace.plan.physical import PhysicalPlan, Stage
from tailrace.spark.epoch.time.watermark import Watermark, lagging


@dataclass(frozen=True)
class EpochTimes:
    """``now``: when the epoch began, in microseconds; it never goes back.

    ``expired``, by operator: records that were last updated at or before it are expired.
    """

    now: int = 0
    expired: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"now": self.now, "expired": dict(self.expired)}

    @classmethod
    def from_json(cls, epoch_config: Mapping[str, Any]) -> EpochTimes:
        """As an epoch has recorded it in its config; where none has, before the first."""
        return cls(epoch_config.get("now", 0), epoch_config.get("expired", {}))

    def after(
        self, plan: PhysicalPlan, watermark: Watermark, now: int, ttls: Mapping[str, int] | None = None
    ) -> EpochTimes:
        """Those of the next epoch, which begins ``now`` and ends with this watermark.

        ``ttls``: spans by operator, where a replayed epoch was recorded with others than the plan's.
        """
        now = max(now, self.now)
        expired = {}
        for stage in plan.stages:
            ttl = stage.operator.state_ttl
            if ttl is not None:
                time = now if ttl.clock is Clock.PROCESSING else _watermark_of(stage, watermark)
                before = self.expired_by(stage)
                span = (ttls or {}).get(stage.operator.name, ttl.span)
                expired[stage.operator.name] = before if time == MIN_MICROS else max(before, time - span)
        return EpochTimes(now, expired)

    def expired_by(self, stage: Stage) -> int:
        return self.expired.get(stage.operator.name, MIN_MICROS)


@dataclass(frozen=True)
class QueryTime:
    """Event time and processing time of a query at the end of an epoch."""

    watermark: Watermark
    times: EpochTimes

    def watermark_of(self, stage: Stage) -> int:
        """The watermark as an operator of the chain sees it."""
        return _watermark_of(stage, self.watermark)

    def late_before(self, stage: Stage) -> int:
        """Rows of the epoch after this one are late for the operator if their time is below this."""
        return self.times.expired_by(stage) if stage.operator.late_by_ttl else self.watermark_of(stage)


def _watermark_of(stage: Stage, watermark: Watermark) -> int:
    return lagging(watermark.closed, stage.lag) if stage.operator.watermarked else MIN_MICROS
