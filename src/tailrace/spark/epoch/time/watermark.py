"""Event time of a query: what was seen, what is late, what closes. Pure.

Two rules. ``tailrace``: windows close by the largest event time seen, this epoch's rows included. ``spark``: by what
was seen before this epoch, in milliseconds and never below 1970, as Spark's own aggregation does between
consecutive batches of data. Under both, rows are late by the watermark that the epoch before closed with.

With an idle timeout, an input without rows for so long holds the others back no more. Where all inputs are silent,
event time goes on with the clock. Silence is counted while the query runs: rows that have waited in a source while it
did not are not late for that.
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
class IdleRule:
    """``timeout``: after so much silence an input is idle. ``passed``: since the epoch before, while the query ran."""

    timeout: int
    passed: int


@dataclass(frozen=True)
class Watermark:
    """As of the end of an epoch. ``closed``: windows that end at or before it have closed.

    By input: ``times_max``, the largest event time seen, and ``silent``, how long it has been without a row.
    """

    times_max: tuple[int, ...]
    closed: int
    silent: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        return {"times_max": list(self.times_max), "closed": self.closed, "silent": list(self.silent)}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any], rule: WatermarkRule, inputs: int) -> Watermark:
        """As an epoch has recorded it; where none has, before the first."""
        if not raw:
            return cls((MIN_MICROS,) * inputs, 0 if rule is WatermarkRule.SPARK else MIN_MICROS, (0,) * inputs)
        return cls(tuple(raw["times_max"]), raw["closed"], tuple(raw["silent"]))

    def after(
        self,
        times_max: Sequence[int],
        delays: Sequence[int],
        rule: WatermarkRule,
        policy: WatermarkPolicy = WatermarkPolicy.MIN,
        idle: IdleRule | None = None,
    ) -> Watermark:
        """The watermark after an epoch whose rows reached ``times_max``: that of the input that ``policy`` names.

        An input without rows in this epoch has no ``times_max`` (``MIN_MICROS``).
        """
        seen = tuple(map(max, self.times_max, times_max))
        silent = tuple(
            0 if time != MIN_MICROS or idle is None else before + idle.passed
            for time, before in zip(times_max, self.silent, strict=True)
        )
        times = self.times_max if rule is WatermarkRule.SPARK else seen
        known = [time != MIN_MICROS for time in times]
        marks = [_mark(time, delay, rule) for time, delay in zip(times, delays, strict=True)]
        waited = [idle is None or each < idle.timeout for each in silent]  # for its rows
        if not any(waited):
            passed = [mark + quiet for mark, quiet, is_known in zip(marks, silent, known, strict=True) if is_known]
            return Watermark(seen, max(self.closed, *passed) if passed else self.closed, silent)
        counted = [
            (mark, is_known)
            for mark, is_known, is_waited in zip(marks, known, waited, strict=True)
            if is_waited or policy is WatermarkPolicy.MAX
        ]
        found = [mark for mark, is_known in counted if is_known]
        if not found or (policy is WatermarkPolicy.MIN and len(found) < len(counted)):
            return Watermark(seen, self.closed, silent)
        return Watermark(seen, max(self.closed, min(found) if policy is WatermarkPolicy.MIN else max(found)), silent)


def _mark(time: int, delay: int, rule: WatermarkRule) -> int:
    """So far behind the largest event time of an input."""
    return time // 1000 * 1000 - delay // 1000 * 1000 if rule is WatermarkRule.SPARK else time - delay


def lagging(watermark: int, lag: int) -> int:
    """The watermark of an operator that lags so far behind the first one."""
    return watermark if watermark == MIN_MICROS else watermark - lag


def times_seen(plan: PhysicalPlan, receipts: Sequence[Receipt]) -> tuple[int, ...]:
    """The largest event time of an epoch's rows, by the plan's inputs; ``MIN_MICROS`` where one has none."""
    seen: list[int] = [MIN_MICROS] * len(plan.inputs)
    inputs = {stage.operator.name: stage.inputs for stage in plan.stages}
    for receipt in receipts:
        for number, time in zip(inputs[receipt.operator], receipt.times_max, strict=True):
            if number is not None:
                seen[number] = max(seen[number], time)
    return tuple(seen)
