"""The config of an epoch: what its output depends on beside its rows and the state before it. Fixed before its rows are
read. Pure.

A replay uses the epoch's recorded config, whatever the options, the plan's delays and the clock are by then. So the
config is recorded: in the epoch's manifest, and where a sink may get the rows before that is durable, in an object of
its own before the sink (``commit.epoch_config``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tailrace.api.options import Combine, WatermarkPolicy
from tailrace.plan.physical import PhysicalPlan
from tailrace.spark.epoch.time.watermark import IdleRule
from tailrace.spark.sources.splits import Splits
from tailrace.spark.tasks.ingest import FRAME_ROWS_MAX, Receipt

_COMBINE_BELOW = 0.6
"""Tasks combine while they leave fewer partials per row than this."""


@dataclass(frozen=True)
class EpochConfig:
    """``combine``, ``route``, ``frame_rows``, ``first_frame``, ``splits``, ``shuffled``: they decide in which order
    floating-point numbers are added. A task's first frame has ``first_frame`` times ``frame_rows`` rows, each one after
    it ``frame_rows`` less. ``splits``: see ``sources.splits``; ``shuffled``: into how many tasks, with route shuffle.

    ``delays``: of the watermark, by input; ``policy``: which of several counts. ``ttls``: time-to-live, by operator.
    ``now``: when the epoch began, in microseconds. ``idle``: after so much silence an input is idle; ``passed``: how
    long ago the epoch before began, 0 of the first one of a run.
    """

    combine: bool
    route: str
    now: int
    frame_rows: int = FRAME_ROWS_MAX
    first_frame: int = 1
    splits: Splits = field(default_factory=dict)
    shuffled: int = 0
    delays: tuple[int, ...] | None = None
    ttls: Mapping[str, int] = field(default_factory=dict)
    policy: WatermarkPolicy = WatermarkPolicy.MIN
    idle: int | None = None
    passed: int = 0

    @classmethod
    def of(cls, plan: PhysicalPlan, combine: bool, now: int, passed: int, **cut: Any) -> EpochConfig:
        """``cut``: how the epoch's rows are cut into tasks and frames."""
        idle = plan.options.idle_timeout
        return cls(
            combine,
            plan.options.route.value,
            now,
            **cut,
            delays=plan.delays,
            ttls=ttls_of(plan),
            policy=plan.policy,
            idle=idle,
            passed=0 if idle is None else passed,
        )

    @property
    def idle_rule(self) -> IdleRule | None:
        return None if self.idle is None else IdleRule(self.idle, self.passed)

    def to_json(self) -> dict[str, Any]:
        return {
            "combine": self.combine,
            "route": self.route,
            "now": self.now,
            "frame_rows": self.frame_rows,
            "first_frame": self.first_frame,
            "splits": dict(self.splits),
            "shuffled": self.shuffled,
            "delays": None if self.delays is None else list(self.delays),
            "ttls": dict(self.ttls),
            "policy": self.policy.value,
            "idle": self.idle,
            "passed": self.passed,
        }

    def record(self, plan: PhysicalPlan) -> dict[str, Any]:
        """What a replay needs. The time only where an operator depends on it: it differs from epoch to epoch."""
        recorded = self.to_json()
        if not depends_on_clock(plan):
            del recorded["now"]
        return recorded

    def as_recorded(self, raw: Mapping[str, Any]) -> EpochConfig:
        """This config, with what was recorded in place of its own values."""
        given: dict[str, Any] = {name: raw[name] for name in _AS_RECORDED if name in raw}
        if "delays" in raw:
            given["delays"] = None if raw["delays"] is None else tuple(raw["delays"])
        return replace(self, **given, policy=recorded_policy(raw, self.policy))


def recorded_policy(raw: Mapping[str, Any], policy: WatermarkPolicy) -> WatermarkPolicy:
    """The policy that a query has begun with; ``policy``: where it has recorded none."""
    return WatermarkPolicy(raw.get("policy", policy))


_AS_RECORDED = ("idle", "passed", "combine", "route", "now", "ttls", "frame_rows", "first_frame", "splits", "shuffled")


def ttls_of(plan: PhysicalPlan) -> dict[str, int]:
    found = {stage.operator.name: stage.operator.state_ttl for stage in plan.stages}
    return {name: ttl.span for name, ttl in found.items() if ttl is not None}


def depends_on_clock(plan: PhysicalPlan) -> bool:
    """Whether an epoch's output depends on when it ran."""
    return any(stage.operator.uses_clock for stage in plan.stages)


def first_combine(plan: PhysicalPlan, recorded: Mapping[str, Any]) -> bool:
    """Whether tasks of a run's first epoch combine rows. ``recorded``: the config of the epoch before it."""
    if plan.options.combine is Combine.AUTO:
        return bool(recorded.get("combine", True))
    return plan.options.combine is Combine.ON


def next_combine(plan: PhysicalPlan, combine: bool, receipts: Sequence[Receipt]) -> bool:
    """Whether combining pays, from the samples that this epoch's tasks took."""
    if plan.options.combine is not Combine.AUTO:
        return plan.options.combine is Combine.ON  # also after a replay whose recorded config had another value
    rows = sum(receipt.sampled_rows for receipt in receipts)
    keys = sum(receipt.sampled_keys for receipt in receipts)
    return combine if not rows else keys < _COMBINE_BELOW * rows
