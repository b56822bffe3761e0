"""When a query has an epoch although no rows come: so that what ends by time ends in time.

After each epoch it is known whether any operator has state that may end: by the watermark, which goes on where inputs
are silent for the idle timeout, or by the clock. Then the next epoch is asked for (``sources.ticks``) after a pause,
unless rows bring one before. Without such state there are no empty epochs.

Threads: one of its own, which only waits and asks.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from tailrace.env import clock, tasks
from tailrace.plan.physical import PhysicalPlan
from tailrace.spark.epoch.time.watermark import Watermark
from tailrace.spark.sources.ticks import Ticks

CLOCK_PAUSE_S = 1.0
"""Between two empty epochs where timers or a time-to-live go by the clock."""
_PAUSES = 4
"""So many empty epochs in each idle timeout, once all inputs are silent."""


def has_idle_epochs(plan: PhysicalPlan) -> bool:
    return plan.options.idle_timeout is not None or any(stage.operator.ends_by_clock for stage in plan.stages)


def pause_s(plan: PhysicalPlan, watermark: Watermark, rows: Mapping[str, int]) -> float | None:
    """How long after an epoch the next one is asked for; None: not at all. ``rows``: of state, by operator."""
    pauses = []
    if any(stage.operator.ends_by_clock and rows[stage.operator.name] for stage in plan.stages):
        pauses.append(CLOCK_PAUSE_S)
    timeout = plan.options.idle_timeout
    if timeout is not None and any(stage.operator.watermarked and rows[stage.operator.name] for stage in plan.stages):
        until_idle = [timeout - silent for silent in watermark.silent if silent < timeout]
        pauses.append(max(min(until_idle) if until_idle else timeout / _PAUSES, 1e6 * CLOCK_PAUSE_S) / 1e6)
    return min(pauses, default=None)


def _first_pause_s(plan: PhysicalPlan) -> float:
    if any(stage.operator.ends_by_clock for stage in plan.stages):
        return CLOCK_PAUSE_S
    return max(CLOCK_PAUSE_S, (plan.options.idle_timeout or 0) / 1e6)


class IdleEpochs:
    """``first``: the first epoch that a run may ask for."""

    def __init__(self, plan: PhysicalPlan, ticks: Ticks, first: int) -> None:
        self._plan = plan
        self._ticks = ticks
        self._changed = threading.Condition()
        # When (monotonic), and which epoch is asked for then. Nobody knows what there is before the first one.
        self._due: tuple[float, int] | None = (clock.monotonic() + _first_pause_s(plan), first)
        self._closed = False
        self._thread = tasks.start("tailrace-idle", self._run)

    def began(self) -> None:
        """An epoch has begun: none is asked for while it runs."""
        with self._changed:
            self._due = None

    def ended(self, epoch: int, watermark: Watermark, rows: Mapping[str, int]) -> None:
        pause = pause_s(self._plan, watermark, rows)
        with self._changed:
            self._due = None if pause is None else (clock.monotonic() + pause, epoch + 1)
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        self._ticks.close()

    def _run(self) -> None:
        with self._changed:
            while not self._closed:
                left = None if self._due is None else self._due[0] - clock.monotonic()
                if self._due is not None and left is not None and left <= 0:
                    self._ticks.ask(self._due[1])
                    self._due = None
                else:
                    self._changed.wait(left)
