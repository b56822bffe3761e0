"""How a task's rows are cut into three frames."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.spark.hints.framing import FRAMES, Cut, cut_of
from tailrace.spark.tasks.ingest import FRAME_ROWS_MAX


def _sizes(task_rows: int, cut: Cut) -> list[int]:
    """The frames of a task, as the ingest task cuts them while they are few."""
    sizes, at = [], 0
    while at < task_rows:
        sizes.append(min(task_rows - at, cut.rows * max(1, cut.first - len(sizes))))
        at += sizes[-1]
    return sizes


@given(st.integers(0, 1 << 24), st.integers(7, 17), st.sampled_from([1, FRAMES]))
def test_a_tasks_rows_are_three_frames_each_smaller_than_the_one_before(
    task_rows: int, before: int, first: int
) -> None:
    known = Cut(min(1 << before, FRAME_ROWS_MAX // first), first)
    found = cut_of(task_rows, known)
    assert cut_of(task_rows, found) == found, "it stays"
    if task_rows < 256:
        assert found == known, "too few rows to learn from"
        return
    assert found.first == FRAMES and found.rows >= 128 and found.first * found.rows <= FRAME_ROWS_MAX
    sizes = _sizes(task_rows, found)
    if found != known and 128 * 6 <= task_rows <= 2 * FRAME_ROWS_MAX - 6:
        assert len(sizes) == 3 and sizes == sorted(sizes, reverse=True)
        assert abs(sizes[0] - 3 * task_rows / 6) <= 3 and abs(sizes[1] - 2 * task_rows / 6) <= 2


def test_few_rows_are_as_many_frames_as_are_worth_it() -> None:
    cuts = {rows: cut_of(rows, Cut()) for rows in (300, 500, 800, 6_000)}
    assert {rows: _sizes(rows, cut) for rows, cut in cuts.items()} == {
        300: [300],
        500: [384, 116],
        800: [402, 268, 130],
        6_000: [3_000, 2_000, 1_000],
    }


def test_sizes_follow_only_where_they_are_far_off() -> None:
    cut = cut_of(6_000, Cut())
    assert [cut_of(rows, cut) == cut for rows in (4_400, 4_600, 7_400, 7_600)] == [False, True, True, False]
