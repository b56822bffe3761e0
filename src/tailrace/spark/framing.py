"""In how many frames tasks send their rows, and what hints beyond them may cost: by how long rows wait. Pure.

Servers see the keys of a frame when it comes (ADR 19): of rows that come in several, most are known while the rest is
still on its way. But a frame costs task and server some milliseconds of processor time, hints out of tasks more, and
points in Spark's plan much more. So each is tried only where rows wait, on average, for longer than the next one costs,
and in a quarter of the epochs at least: a machine has hiccups, and nothing here helps against them. First comes one
more frame, then another, then hints out of tasks, then points of the plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tailrace.spark.basis import FRAME_ROWS_MAX

FRAMES = (1, 2, 3, 4, 6)
"""The numbers of frames that are tried."""
_ROWS_MIN = 128
"""A frame costs a millisecond or so, whatever its size."""


@dataclass(frozen=True)
class FramingRule:
    worth_ms: float = 20.0  # that rows wait in an epoch, on average, before points of the plan are used; 0: at once
    tasks_share: float = 0.1  # of that, for hints out of tasks
    frame_share: float = 0.05  # and for one more frame
    epochs: int = 4  # that must have been seen since the last change, at least
    epochs_kept: int = 16  # and at most
    epochs_settling: int = 2  # after a change, that are not counted


@dataclass(frozen=True)
class Framing:
    rule: FramingRule = FramingRule()
    frames: int = 1
    settling: int = 0  # epochs more that are not counted
    waits_ms: tuple[float, ...] = ()  # of the newest epochs since the last change
    in_tasks: bool = False  # hints out of tasks are worth what they cost
    in_plan: bool = False  # points of the plan are

    def after(self, wait_ms: float, waited: bool) -> Framing:
        """What is decided after one more epoch, whose rows have waited for so long, or at all."""
        rule = self.rule
        known = replace(self, in_plan=self.in_plan or (waited and not rule.worth_ms))
        if self.settling:
            return replace(known, settling=self.settling - 1)
        known = replace(known, waits_ms=(*self.waits_ms, wait_ms)[-rule.epochs_kept :])
        mean_ms = sum(known.waits_ms) / len(known.waits_ms)
        often = 4 * sum(wait > 0 for wait in known.waits_ms) >= len(known.waits_ms)
        if len(known.waits_ms) < rule.epochs or not mean_ms or not often:
            return known
        more = [frames for frames in FRAMES if frames > self.frames]
        if more and mean_ms >= rule.frame_share * rule.worth_ms:
            return replace(known, frames=more[0], settling=rule.epochs_settling, waits_ms=())
        if more:
            return known
        return replace(
            known,
            in_tasks=self.in_tasks or mean_ms >= rule.tasks_share * rule.worth_ms,
            in_plan=known.in_plan or mean_ms >= rule.worth_ms,
        )


def frame_rows(task_rows: int, frames: int, before: int) -> int:
    """Rows of a task's last frame, where it has about so many rows for so many frames, each larger than the next.

    The first has ``frames`` times as many, and so on down: the last have the least time before their rows are needed,
    and the first the most. It changes only where it is far off: what an epoch goes by is recorded whenever it changes.
    """
    if frames == 1:
        return FRAME_ROWS_MAX
    share = -(-2 * task_rows // (frames * (frames + 1)))
    if task_rows < 2 * _ROWS_MIN or (before < FRAME_ROWS_MAX and 6 * before <= 8 * share <= 9 * before):
        return before
    coarse = max(0, share.bit_length() - 3)
    fitting = -(-share >> coarse) << coarse
    return min(FRAME_ROWS_MAX // 2, max(_ROWS_MIN, fitting))
