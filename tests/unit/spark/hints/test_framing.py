"""In how many frames tasks send their rows: the rule against a plain statement of it, and the rows of a frame."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.spark.hints.framing import FRAMES, Cut, Framing, FramingRule, cut_of
from tailrace.spark.tasks.ingest import FRAME_ROWS_MAX

RULE = FramingRule(epochs=3, epochs_kept=5, epochs_settling=1, plan_epochs=6, plan_epochs_max=12)


def _plainly(waits: list[float]) -> tuple[int, bool, bool]:
    """Frames, and whether hints out of tasks and points of the plan are worth it, from all epochs so far."""
    step, begun = 0, 0
    in_tasks = False
    until = left = None  # the epoch with which points of the plan are left, and that with which they were
    used_for = 0
    for end in range(1, len(waits) + 1):
        if until == end:
            until, left, begun = None, end, end + RULE.epochs_settling
        seen = waits[begun:end]
        if len(seen) < RULE.epochs:
            continue
        lately = seen[-RULE.epochs_kept :]
        mean = sum(lately) / len(lately)
        if len([wait for wait in lately if wait]) < max(2, len(lately) / 4):
            continue
        if step + 1 < len(FRAMES) and mean >= 1.0:
            step, begun = step + 1, end + RULE.epochs_settling
        elif step + 1 == len(FRAMES):
            in_tasks = in_tasks or mean >= 5.0
            if until is None and mean >= 20.0:
                soon = left is not None and end - left < used_for
                used_for = min(12, 2 * used_for) if soon else 6
                until = end + used_for
    return FRAMES[step], in_tasks, until is not None


@given(st.lists(st.sampled_from([0.0, 0.5, 1.5, 7.0, 100.0]), max_size=100))
def test_one_more_frame_where_rows_wait_for_longer_than_it_costs(waits: list[float]) -> None:
    framing = Framing(RULE)
    for wait in waits:
        framing = framing.after(wait, wait > 0)
    assert (framing.frames, framing.in_tasks, framing.in_plan) == _plainly(waits)


def test_points_of_the_plan_are_left_to_see_whether_rows_wait_without_them() -> None:
    framing, used = Framing(), []
    for _ in range(1_200):
        wait = 0.0 if framing.in_plan else 30.0
        framing = framing.after(wait, wait > 0)
        used.append(framing.in_plan)
    changes = [number for number in range(1, len(used)) if used[number] != used[number - 1]]
    assert [end - begin for begin, end in zip(changes[::2], changes[1::2])] == [64, 128, 256, 512]
    for _ in range(1_200):
        framing = framing.after(0.0, False)
    assert not framing.in_plan, "rows did not wait without them"


def test_the_papers_rule_uses_points_of_the_plan_at_once() -> None:
    rule = FramingRule(worth_ms=0.0)
    assert not Framing(rule).after(0.0, False).in_plan
    assert Framing(rule).after(0.1, True).in_plan
    settling = Framing(rule, settling=2)
    assert settling.after(0.1, True).in_plan


@given(st.integers(0, 1 << 24), st.sampled_from(FRAMES[1:]), st.integers(7, 17), st.integers(1, 6))
def test_a_tasks_rows_are_so_many_frames(task_rows: int, frames: int, before: int, first: int) -> None:
    known = Cut(1 << before, first)
    found = cut_of(task_rows, frames, known)
    assert cut_of(task_rows, frames, found) == found, "it stays"
    assert cut_of(task_rows, 1, found) == Cut()
    if task_rows < 256 or found == known:
        assert task_rows >= 256 or found == known
        return
    assert found.rows >= 128 and found.first >= 2 and found.first * found.rows <= FRAME_ROWS_MAX
    sizes = _sizes(task_rows, found)
    if task_rows >= 128 * 21 and sizes[0] < FRAME_ROWS_MAX // 2:
        assert frames - 2 <= len(sizes) <= frames and sizes[-1] == min(sizes)
    elif task_rows >= 128 * 3 * 3:
        assert len(sizes) >= 2, "several, however few rows there are"


def _sizes(task_rows: int, cut: Cut) -> list[int]:
    sizes, at = [], 0
    while at < task_rows:
        sizes.append(min(task_rows - at, cut.rows * max(1, cut.first - len(sizes))))
        at += sizes[-1]
    return sizes


def test_few_rows_are_as_many_frames_as_are_worth_it() -> None:
    cuts = {rows: cut_of(rows, 6, Cut()) for rows in (300, 500, 800, 1_300, 2_000, 2_700)}
    assert {rows: _sizes(rows, cut) for rows, cut in cuts.items()} == {
        300: [256, 44],
        500: [336, 164],
        800: [408, 272, 120],
        1_300: [544, 408, 272, 76],
        2_000: [680, 544, 408, 272, 96],
        2_700: [816, 680, 544, 408, 252],
    }


def test_sizes_follow_only_where_they_are_far_off() -> None:
    cut = cut_of(10_000, 4, Cut())
    assert [cut_of(rows, 4, cut) == cut for rows in (7_000, 7_500, 12_000, 13_500)] == [False, True, True, False]
