"""Staging: committed attempts, other attempts, zombies, broken streams, spilling."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest

from support.servers.fakes import OPERATOR, RUN, FakeFrame, frame_of, key, receipt_of, stage
from tailrace.env.transit_memory import TransitMemory
from tailrace.errors import FencedError, StateServerError
from tailrace.ids import Attempt
from tailrace.server.epoch.staging import Staging
from tailrace.server.transport.stage_messages import CommittedAttempt, StageReceipt


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    return Staging(RUN, str(tmp_path), TransitMemory(1 << 20), frame_of)


def numbers(staging: Staging, at: Attempt, committed_attempts: list[CommittedAttempt]) -> list[int]:
    taken = staging.select(OPERATOR, at, committed_attempts)
    found = [n for frame in staging.frames(taken) for n in frame.numbers]  # type: ignore[attr-defined]
    staging.release(taken)
    return found


def test_committed_attempts_come_as_they_are_named_and_losers_go(staging: Staging) -> None:
    second = stage(staging, 0, 0, 11, 1, (3,), (4,))
    stage(staging, 0, 0, 12, 0, (1, 2))  # a speculative copy that lost
    first = stage(staging, 0, 0, 15, 0, (1, 2))
    assert numbers(staging, Attempt(0, 0), [second, first]) == [3, 4, 1, 2]
    assert staging.staged_bytes == 0


def test_a_zombie_is_refused_once_the_committed_attempts_are_known(staging: Staging) -> None:
    late = staging.open(key(0, 0, 12, 0))
    staging.add(late, FakeFrame((9,)).to_batch())
    assert numbers(staging, Attempt(0, 0), [stage(staging, 0, 0, 11, 0, (1,))]) == [1]
    with pytest.raises(FencedError, match="went on without it"):
        staging.add(late, FakeFrame((9,)).to_batch())
    with pytest.raises(FencedError):
        staging.finish(late, receipt_of((9,)))
    staging.abandon(late)
    with pytest.raises(FencedError, match="has its committed attempts"):
        staging.open(key(0, 0, 13, 0))
    assert staging.staged_bytes == 0


@pytest.mark.parametrize(
    ("committed_attempt", "message"),
    [
        (CommittedAttempt(0, 99, 2, 0), "partition 0 attempt 99: 2 rows missing"),
        (CommittedAttempt(1, 7, 2, 0), "staged for partition 0"),
        (CommittedAttempt(0, 7, 3, 0), "3 rows expected, 2 staged"),
        (CommittedAttempt(0, 7, 2, 5), "checksum 0x5 expected"),
    ],
)
def test_what_is_missing_or_wrong_is_named_and_nothing_is_taken(
    staging: Staging, committed_attempt: CommittedAttempt, message: str
) -> None:
    right = stage(staging, 0, 0, 7, 0, (1, 2))
    with pytest.raises(StateServerError, match=message):
        staging.select(OPERATOR, Attempt(0, 0), [committed_attempt])
    assert numbers(staging, Attempt(0, 0), [right]) == [1, 2]


def test_two_committed_attempts_of_one_partition_are_refused(staging: Staging) -> None:
    committed_attempts = [stage(staging, 0, 0, 7, 0, (1,)), stage(staging, 0, 0, 8, 0, (1,))]
    with pytest.raises(StateServerError, match="two committed attempts"):
        staging.select(OPERATOR, Attempt(0, 0), committed_attempts)


def test_an_unfinished_stream_cannot_win(staging: Staging) -> None:
    opened = staging.open(key(0, 0, 7, 0))
    staging.add(opened, FakeFrame((1, 2)).to_batch())
    committed_attempt = CommittedAttempt(0, 7, 2, receipt_of((1, 2)).checksum)
    with pytest.raises(StateServerError, match="has not ended"):
        staging.select(OPERATOR, Attempt(0, 0), [committed_attempt])
    staging.abandon(opened)
    assert staging.staged_bytes == 0
    with pytest.raises(StateServerError, match="rows missing"):
        staging.select(OPERATOR, Attempt(0, 0), [committed_attempt])


def test_a_sender_that_counted_otherwise_is_refused(staging: Staging) -> None:
    opened = staging.open(key(0, 0, 7, 0))
    staging.add(opened, FakeFrame((1, 2)).to_batch())
    with pytest.raises(StateServerError, match="arrived"):
        staging.finish(opened, StageReceipt(1, 2, 16, 0))
    with pytest.raises(StateServerError, match="arrived"):
        staging.finish(opened, receipt_of((1, 2), (3,)))


def test_frames_in_another_order_have_another_checksum() -> None:
    assert receipt_of((1,), (2,)).checksum != receipt_of((2,), (1,)).checksum


def test_one_attempt_stages_once(staging: Staging) -> None:
    stage(staging, 0, 0, 7, 0, (1,))
    with pytest.raises(StateServerError, match="already staged"):
        staging.open(key(0, 0, 7, 0))


def test_a_later_try_drops_and_fences_the_earlier(staging: Staging) -> None:
    old = staging.open(key(3, 0, 7, 0))
    stage(staging, 3, 0, 8, 1, (1,))
    staging.fence(Attempt(2, 5))
    new = stage(staging, 3, 1, 9, 0, (2,))
    with pytest.raises(FencedError):
        staging.add(old, FakeFrame((1,)).to_batch())
    with pytest.raises(FencedError, match="epoch 3 try 0 is over"):
        staging.open(key(3, 0, 10, 0))
    assert numbers(staging, Attempt(3, 1), [new]) == [2]
    assert staging.staged_bytes == 0


def test_other_runs_and_forgotten_epochs_are_refused(staging: Staging) -> None:
    with pytest.raises(FencedError, match="belongs to run"):
        staging.open(key(0, 0, 7, 0, run="ffffffffffffffff"))
    stage(staging, 4, 0, 7, 0, (1,))
    staging.fence(Attempt(4, 0), forgotten=4)
    assert staging.staged_bytes == 0
    with pytest.raises(FencedError):
        staging.open(key(4, 3, 8, 0))


def test_operators_are_sealed_one_by_one(staging: Staging) -> None:
    first = stage(staging, 0, 0, 7, 0, (1,))
    assert numbers(staging, Attempt(0, 0), [first]) == [1]
    second = stage(staging, 0, 0, 8, 0, (2,), operator="next")
    assert len(staging.select("next", Attempt(0, 0), [second])) == 1


def test_what_does_not_fit_in_memory_is_spilled_and_read_back_in_order(tmp_path: Path) -> None:
    staging = Staging(RUN, str(tmp_path), TransitMemory(100 * 8), frame_of)
    frames = [tuple(range(at, at + 30)) for at in range(0, 300, 30)]
    committed_attempt = stage(staging, 0, 0, 7, 0, *frames)
    other = stage(staging, 0, 0, 8, 1, *frames)
    assert staging.staged_bytes == 2 * 300 * 8
    assert staging.spilled_bytes == (2 * 300 - 90) * 8
    assert numbers(staging, Attempt(0, 0), [committed_attempt, other]) == [*range(300), *range(300)]
    assert staging.staged_bytes == staging.spilled_bytes == 0
    assert os.listdir(tmp_path) == []


def test_rows_that_come_back_from_disk_otherwise_are_noticed(tmp_path: Path) -> None:
    wrong = {"on": False}

    def damaged(operator: str, batch: object) -> FakeFrame:
        frame = frame_of(operator, batch)
        return FakeFrame((*frame.numbers[:-1], -1)) if wrong["on"] else frame

    staging = Staging(RUN, str(tmp_path), TransitMemory(0), damaged)
    taken = staging.select(OPERATOR, Attempt(0, 0), [stage(staging, 0, 0, 7, 0, (1, 2))])
    wrong["on"] = True
    with pytest.raises(StateServerError, match="came back damaged"):
        list(staging.frames(taken))


def test_many_threads_stage_at_once(tmp_path: Path) -> None:
    staging = Staging(RUN, str(tmp_path), TransitMemory(4000), frame_of)
    committed_attempts: list[CommittedAttempt] = []
    rng = random.Random(1)
    plans = [[tuple(rng.randrange(1000) for _ in range(rng.randrange(1, 50))) for _ in range(20)] for _ in range(8)]

    def work(partition: int) -> None:
        committed_attempts.append(stage(staging, 0, 0, 100 + partition, partition, *plans[partition]))

    threads = [threading.Thread(target=work, args=(partition,)) for partition in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert staging.spilled_bytes > 0
    found = numbers(staging, Attempt(0, 0), sorted(committed_attempts))
    assert found == [n for plan in plans for frame in plan for n in frame]
    assert staging.staged_bytes == staging.spilled_bytes == 0


def test_a_frame_that_is_previewed_is_staged_only_when_its_task_has_sent_all(staging: Staging) -> None:
    frames = [FakeFrame((1, 2)), FakeFrame((3,))]
    assert [staging.preview(key(0, 0, 5, 0), frame.to_batch()).n for frame in frames] == [2, 1]
    assert staging.staged_bytes == 0
    made = staging.open(key(0, 0, 5, 0))
    for frame in (*frames, FakeFrame((4,))):
        assert staging.add(made, frame.to_batch(), in_file=True).n == frame.n
    receipt = staging.finish(made, receipt_of((1, 2), (3,), (4,)))
    assert numbers(staging, Attempt(0, 0), [CommittedAttempt(0, 5, receipt.rows, receipt.checksum)]) == [1, 2, 3, 4]
    with pytest.raises(FencedError):  # the epoch has its committed attempts: nothing is fetched for who comes late
        staging.preview(key(0, 0, 6, 0), frames[0].to_batch())
