"""In how many frames tasks send their rows, and what hints beyond them may cost: by how long rows wait. Pure.

Servers see the keys of a frame when it comes (ADR 19): of rows that come in several, most are known while the rest is
still on its way. But a frame costs task and server some milliseconds of processor time, hints out of tasks more, and
points in Spark's plan much more. So each is tried only where rows wait, on average, for longer than the next one costs,
and more than once, in a quarter of the epochs at least: a machine has hiccups, and nothing here helps against them.
First comes one more frame, then another, then hints out of tasks, then points of the plan. Those, the dearest, are left
again after a while: what rows would wait without them can be seen only without them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tailrace.spark.tasks.ingest import FRAME_ROWS_MAX

FRAMES = (1, 2, 3, 4, 6)
"""The numbers of frames that are tried."""
_ROWS_MIN = 128
"""A frame costs a millisecond or so, whatever its size."""


@dataclass(frozen=True)
class FramingRule:
    worth_ms: float = 20.0  # that rows wait in an epoch, on average, before points of the plan are used; 0: at once
    tasks_share: float = 0.25  # of that, for hints out of tasks
    frame_share: float = 0.05  # and for one more frame
    epochs: int = 4  # that must have been seen since the last change, at least
    epochs_kept: int = 16  # and at most
    epochs_settling: int = 2  # after a change, that are not counted
    plan_epochs: int = 64  # for which points of the plan are used before it is tried without them, ...
    plan_epochs_max: int = 1024  # ... twice as long each time that this was too early, up to this


@dataclass(frozen=True)
class Framing:
    rule: FramingRule = FramingRule()
    frames: int = 1
    settling: int = 0  # epochs more that are not counted
    waits_ms: tuple[float, ...] = ()  # of the newest epochs since the last change
    in_tasks: bool = False  # hints out of tasks are worth what they cost
    in_plan: bool = False  # points of the plan are ...
    plan_for: int = 0  # ... for so many epochs
    plan_since: int = 0  # since that was found, or they were left

    def after(self, wait_ms: float, waited: bool) -> Framing:
        """What is decided after one more epoch, whose rows have waited for so long, or at all."""
        rule = self.rule
        known = replace(self, in_plan=self.in_plan or (waited and not rule.worth_ms), plan_since=self.plan_since + 1)
        if known.in_plan and rule.worth_ms and known.plan_since >= known.plan_for:
            return replace(known, in_plan=False, plan_since=0, settling=rule.epochs_settling, waits_ms=())
        if self.settling:
            return replace(known, settling=self.settling - 1)
        known = replace(known, waits_ms=(*self.waits_ms, wait_ms)[-rule.epochs_kept :])
        mean_ms = sum(known.waits_ms) / len(known.waits_ms)
        late = sum(wait > 0 for wait in known.waits_ms)
        often = late > 1 and 4 * late >= len(known.waits_ms)
        if len(known.waits_ms) < rule.epochs or not mean_ms or not often:
            return known
        more = [frames for frames in FRAMES if frames > self.frames]
        if more and mean_ms >= rule.frame_share * rule.worth_ms:
            return replace(known, frames=more[0], settling=rule.epochs_settling, waits_ms=())
        if more:
            return known
        known = replace(known, in_tasks=self.in_tasks or mean_ms >= rule.tasks_share * rule.worth_ms)
        return known if known.in_plan or mean_ms < rule.worth_ms else known._with_points()

    def _with_points(self) -> Framing:
        """Points of the plan are used from now on, for longer where they were left too early."""
        rule, again = self.rule, self.plan_since < self.plan_for
        epochs = min(rule.plan_epochs_max, 2 * self.plan_for) if again else rule.plan_epochs
        return replace(self, in_plan=True, plan_for=epochs, plan_since=0)


@dataclass(frozen=True)
class Cut:
    """How a task's rows are cut: its first frame has ``first`` times ``rows`` of them, the second one time less, and so
    on down to ``rows``, as all that follow have."""

    rows: int = FRAME_ROWS_MAX
    first: int = 1


def cut_of(task_rows: int, frames: int, before: Cut) -> Cut:
    """For tasks of about so many rows, in so many frames.

    Each is smaller than the one before: the last have the least time before their rows are needed, and the first the
    most. It changes only where it is far off: what an epoch goes by is recorded whenever it changes. Where that many
    frames would be smaller than one is worth, or larger than one may be, there are fewer, or more.
    """
    if frames == 1:
        return Cut()
    if task_rows < 2 * _ROWS_MIN:
        return before
    first = max(2, max(n for n in range(1, frames + 1) if n == 1 or _units(n) * _ROWS_MIN <= task_rows))
    share = -(-task_rows // _units(first))
    if first * share > FRAME_ROWS_MAX:
        first, share = 2, -(-task_rows // (frames + 1))
    if before.first == first and 14 * before.rows <= 20 * share <= 25 * before.rows:
        return before
    coarse = max(0, share.bit_length() - 5)
    fitting = -(-share >> coarse) << coarse
    return Cut(min(FRAME_ROWS_MAX // first, max(_ROWS_MIN, fitting)), first)


def _units(first: int) -> int:
    """Frames that become smaller one by one have so many times the rows of the last."""
    return first * (first + 1) // 2
