"""In how many frames tasks send their rows: the rule against a plain statement of it, and the rows of a frame."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.spark.basis import FRAME_ROWS_MAX
from tailrace.spark.framing import FRAMES, Framing, FramingRule, frame_rows

RULE = FramingRule(epochs=3, epochs_kept=5, epochs_settling=1)


def _plainly(waits: list[float]) -> tuple[int, bool, bool]:
    """Frames, and whether hints out of tasks and points of the plan are worth it, from all epochs so far."""
    step, begun = 0, 0
    in_tasks = in_plan = False
    for end in range(1, len(waits) + 1):
        seen = waits[begun:end]
        if len(seen) < RULE.epochs:
            continue
        lately = seen[-RULE.epochs_kept :]
        mean = sum(lately) / len(lately)
        if len([wait for wait in lately if wait]) < len(lately) / 4:
            continue
        if step + 1 < len(FRAMES) and mean >= 1.0:
            step, begun = step + 1, end + RULE.epochs_settling
        elif step + 1 == len(FRAMES):
            in_tasks, in_plan = in_tasks or mean >= 2.0, in_plan or mean >= 20.0
    return FRAMES[step], in_tasks, in_plan


@given(st.lists(st.sampled_from([0.0, 0.5, 1.5, 4.0, 100.0]), max_size=60))
def test_one_more_frame_where_rows_wait_for_longer_than_it_costs(waits: list[float]) -> None:
    framing = Framing(RULE)
    for wait in waits:
        framing = framing.after(wait, wait > 0)
    assert (framing.frames, framing.in_tasks, framing.in_plan) == _plainly(waits)


def test_the_papers_rule_uses_points_of_the_plan_at_once() -> None:
    rule = FramingRule(worth_ms=0.0)
    assert not Framing(rule).after(0.0, False).in_plan
    assert Framing(rule).after(0.1, True).in_plan
    settling = Framing(rule, settling=2)
    assert settling.after(0.1, True).in_plan


@given(st.integers(0, 1 << 24), st.sampled_from(FRAMES[1:]), st.integers(7, 17))
def test_a_tasks_rows_are_so_many_frames(task_rows: int, frames: int, before: int) -> None:
    found = frame_rows(task_rows, frames, 1 << before)
    assert 128 <= found <= FRAME_ROWS_MAX
    assert frame_rows(task_rows, frames, found) == found, "it stays"
    if task_rows < 256:
        assert found == 1 << before
    elif found not in (1 << before, 128, FRAME_ROWS_MAX // 2):
        ends = [found * sum(range(frames - made, frames + 1)) for made in range(frames)]
        assert frames - 2 <= sum(end < task_rows for end in ends) + 1 <= frames, "and the last is the smallest"
    assert frame_rows(task_rows, 1, found) == FRAME_ROWS_MAX
