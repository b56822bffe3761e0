"""What an epoch goes by beside its rows and the state before it: fixed before its rows are read. Pure.

A replay goes by what the epoch went by, whatever the options, the plan's delays and the clock say by then. So this is
recorded: in the epoch's manifest, and where a sink may get the rows before that is durable, before the sink
(``commit.decisions``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tailrace.plan.physical import PhysicalPlan

FRAME_ROWS_MAX = 1 << 17
"""Rows of a frame, where nothing is gained by smaller ones."""


@dataclass(frozen=True)
class EpochConfig:
    """``combine``, ``route``, ``frame_rows``, ``first_frame``: they decide in which order floating-point numbers are
    added. A task's first frame has ``first_frame`` times ``frame_rows`` rows, each one after it ``frame_rows`` less.

    ``delays``: of the watermark, by input. ``ttls``: time-to-live, by operator. ``now``: when the epoch began, in
    microseconds.
    """

    combine: bool
    route: str
    now: int
    frame_rows: int = FRAME_ROWS_MAX
    first_frame: int = 1
    delays: tuple[int, ...] | None = None
    ttls: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, plan: PhysicalPlan, combine: bool, now: int, frame_rows: int = FRAME_ROWS_MAX, first_frame: int = 1
    ) -> EpochConfig:
        return cls(
            combine, plan.options.route.value, now, frame_rows, first_frame, delays=plan.delays, ttls=ttls_of(plan)
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "combine": self.combine,
            "route": self.route,
            "now": self.now,
            "frame_rows": self.frame_rows,
            "first_frame": self.first_frame,
            "delays": None if self.delays is None else list(self.delays),
            "ttls": dict(self.ttls),
        }

    def record(self, plan: PhysicalPlan) -> dict[str, Any]:
        """What a replay must be told. Of the time only where an operator asks for it: it is another one every epoch."""
        told = self.to_json()
        if not goes_by_clock(plan):
            del told["now"]
        return told

    def as_recorded(self, raw: Mapping[str, Any]) -> EpochConfig:
        """This one, with what was recorded in place of its own."""
        given: dict[str, Any] = {name: raw[name] for name in ("combine", "route", "now", "ttls") if name in raw}
        # Manifests of before do not tell.
        given |= {"frame_rows": raw.get("frame_rows", FRAME_ROWS_MAX), "first_frame": raw.get("first_frame", 1)}
        if "delays" in raw:
            given["delays"] = None if raw["delays"] is None else tuple(raw["delays"])
        return replace(self, **given)


def ttls_of(plan: PhysicalPlan) -> dict[str, int]:
    found = {stage.operator.name: stage.operator.state_ttl for stage in plan.stages}
    return {name: ttl.span for name, ttl in found.items() if ttl is not None}


def goes_by_clock(plan: PhysicalPlan) -> bool:
    """Whether what an epoch emits depends on when it ran."""
    return any(stage.operator.uses_clock for stage in plan.stages)
