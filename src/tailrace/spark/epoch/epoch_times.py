"""What an epoch goes by beside its watermark: its own time, and what is forgotten by it. Pure.

Both are recorded with the epoch, so that a replay does exactly the same, whatever the clock says then, and even if the
time-to-live was changed meanwhile: a change counts from the first epoch that was never durable before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.ids import MIN_MICROS
from tailrace.operators.timers.ttl import Clock
from tailrace.plan.physical import PhysicalPlan, Stage
from tailrace.spark.epoch.watermark import Watermark, behind


@dataclass(frozen=True)
class EpochTimes:
    """``now``: when the epoch began, in microseconds; it never goes back.

    ``forgotten``, by operator: records that were last updated at or before it are.
    """

    now: int = 0
    forgotten: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"now": self.now, "forgotten": dict(self.forgotten)}

    @classmethod
    def from_json(cls, epoch_config: Mapping[str, Any]) -> EpochTimes:
        """As an epoch has recorded it among its decisions; where none has, before the first."""
        return cls(epoch_config.get("now", 0), epoch_config.get("forgotten", {}))

    def after(
        self, plan: PhysicalPlan, watermark: Watermark, now: int, ttls: Mapping[str, int] | None = None
    ) -> EpochTimes:
        """Those of the next epoch, which begins ``now`` and ends with this watermark.

        ``ttls``: spans by operator, where an epoch that is replayed went by others than the plan's.
        """
        now = max(now, self.now)
        forgotten = {}
        for stage in plan.stages:
            ttl = stage.operator.state_ttl
            if ttl is not None:
                time = now if ttl.clock is Clock.PROCESSING else mark(stage, watermark)
                before = self.forgotten_by(stage)
                span = (ttls or {}).get(stage.operator.name, ttl.span)
                forgotten[stage.operator.name] = before if time == MIN_MICROS else max(before, time - span)
        return EpochTimes(now, forgotten)

    def forgotten_by(self, stage: Stage) -> int:
        return self.forgotten.get(stage.operator.name, MIN_MICROS)

    def late_before(self, stage: Stage, watermark: Watermark) -> int:
        """By what an operator's rows are late in the epoch after this one."""
        return self.forgotten_by(stage) if stage.operator.late_by_ttl else mark(stage, watermark)


def mark(stage: Stage, watermark: Watermark) -> int:
    """The watermark as an operator of the chain sees it."""
    return behind(watermark.closed, stage.lag) if stage.operator.watermarked else MIN_MICROS
