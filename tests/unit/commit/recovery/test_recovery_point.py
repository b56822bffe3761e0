"""The recovery point of a start: every combination of Spark's logs and ours."""

from __future__ import annotations

import pytest

from tailrace.commit.log import Damaged, Fence, History
from tailrace.commit.manifest import EMPTY, Manifest
from tailrace.commit.recovery.recovery_point import decide, resolve
from tailrace.errors import CheckpointError, CorruptionError

RUN = "0123456789abcdef"


def durable(epoch: int, number: int = 7) -> Manifest:
    return Manifest(epoch=epoch, run=RUN, try_=0, number=number, parent=number - 1)


def history(*entries) -> History:
    return History(tuple(sorted(each.number for each in entries)), entries)


FENCE = Fence(RUN, 9, "host", 1, "now")
BROKEN = Damaged(8, CorruptionError("log/8 is damaged"))


def test_fresh() -> None:
    for offsets in ([], [0]):
        wanted = decide([], offsets, history(FENCE), "/s")
        assert (wanted.epoch, wanted.manifest, wanted.replay) == (-1, EMPTY, None)


@pytest.mark.parametrize("offset", [4, 5])
def test_same_epoch_on_both_sides(offset: int) -> None:
    wanted = decide([3, 4], [3, offset], history(FENCE, durable(4)), "/s")
    assert (wanted.epoch, wanted.manifest, wanted.replay) == (4, durable(4), None)


def test_one_ahead_opens_the_one_before_and_hands_over_the_recorded_epoch() -> None:
    wanted = decide([3, 4], [4, 5], history(FENCE, durable(5)), "/s")
    assert (wanted.epoch, wanted.manifest, wanted.parent, wanted.replay) == (4, None, 6, durable(5))
    assert resolve(wanted, durable(4, 6), "/s").manifest == durable(4, 6)
    with pytest.raises(CheckpointError, match="should hold epoch 4 and holds epoch 3"):
        resolve(wanted, durable(3, 6), "/s")
    first = decide([], [0], history(FENCE, durable(0)), "/s")
    assert (first.epoch, first.manifest, first.replay) == (-1, EMPTY, durable(0))


def test_one_behind_rewinds_offsets_first() -> None:
    planned = decide([3, 4], [3, 4, 5], history(FENCE, durable(3)), "/s")
    assert (planned.epoch, planned.manifest, planned.replay) == (3, durable(3), None)
    assert (planned.committed, planned.planned) == (3, 4), "epoch 5 has reached no sink"
    assert planned.rewind == ("offsets/5", "commits/4")
    # As after a crash between the two moves.
    moved = decide([3, 4], [3, 4], history(FENCE, durable(3)), "/s")
    assert (moved.epoch, moved.rewind) == (3, ("commits/4",))
    done = decide([3], [3, 4], history(FENCE, durable(3)), "/s")
    assert (done.epoch, done.rewind) == (3, ())


def test_one_behind_at_the_first_epoch_needs_the_fence_of_an_earlier_run() -> None:
    wanted = decide([0], [0, 1], history(FENCE), "/s")
    assert (wanted.epoch, wanted.manifest, wanted.rewind) == (-1, EMPTY, ("offsets/1", "commits/0"))


@pytest.mark.parametrize(
    ("commits", "offsets", "ours", "epoch", "moved"),
    [
        ([4], [4, 5, 6], 4, 4, ("offsets/6",)),  # after a rewind of commit 5, of which it knows nothing
        ([3], [3, 4, 5], 4, 3, ("offsets/5",)),  # behind an epoch that is durable and is replayed
        ([3, 4], [3, 4, 5], 3, 3, ("offsets/5", "commits/4")),
    ],
)
def test_what_a_jvm_has_planned_that_outlived_its_driver_is_moved(commits, offsets, ours, epoch, moved) -> None:
    wanted = decide(commits, offsets, history(FENCE, durable(ours)), "/s")
    assert (wanted.epoch, wanted.committed, wanted.planned) == (epoch, epoch, epoch + 1)
    assert wanted.rewind == moved


def test_one_behind_is_refused_where_the_source_gives_an_epoch_only_once() -> None:
    with pytest.raises(CheckpointError, match="do not belong together"):
        decide([4], [4], history(FENCE, durable(3)), "/s", reread=False)


@pytest.mark.parametrize(
    ("commits", "offsets", "ours", "message"),
    [
        ([4], [4], -1, "no state for the epochs"),
        ([0], [0], -1, "no state for the epochs"),
        ([6], [6], 4, "do not belong together"),
        ([5], [6], 7, "do not belong together"),
        ([5], [5], 6, "do not belong together"),  # durable, but its offset was never written
        ([], [], 3, "Spark's checkpoint is empty"),
        ([], [], 0, "Spark's checkpoint is empty"),
        ([], [0], 3, "do not belong together"),
        ([5], [8], 5, "does not fit together"),
        ([5], [4], 5, "does not fit together"),
        ([5], [], 5, "does not fit together"),
    ],
)
def test_anything_else_is_refused_and_says_which_epochs_are_where(commits, offsets, ours, message) -> None:
    entries = [] if ours < 0 else [FENCE, durable(ours)]
    with pytest.raises(CheckpointError, match=message) as caught:
        decide(commits, offsets, history(*entries), "/state/here")
    text = str(caught.value)
    assert "/state/here" in text
    for name, epochs in (("commit", commits), ("offset", offsets)):
        assert f"newest {name}: {'none' if not epochs else f'epoch {max(epochs)}'}" in text
    assert f"/state/here: {'none' if ours < 0 else f'epoch {ours}'}" in text


def test_a_damaged_entry_is_passed_over_only_where_that_is_exact() -> None:
    wanted = decide([4], [4, 5], history(FENCE, BROKEN, durable(4)), "/s")
    assert (wanted.epoch, wanted.manifest, wanted.replay) == (4, durable(4), None)
    for commits in ([5], [3]):
        with pytest.raises(CorruptionError, match="log/8"):
            decide(commits, [max(commits), max(commits) + 1], history(FENCE, BROKEN, durable(4)), "/s")
    wanted = decide([], [0], history(BROKEN), "/s")  # nothing committed: whatever it was, epoch 0 starts from nothing
    assert wanted.manifest == EMPTY
