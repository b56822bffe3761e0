"""Parts of stages: held until their task has sent all, in their order, and no longer than their epoch."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tailrace.errors import StateServerError
from tailrace.server.epoch.staged_parts import StagedParts
from tailrace.server.transport.stage_messages import StageKey


def key(epoch: int, attempt: int = 7) -> StageKey:
    return StageKey("run", "op", epoch, 0, attempt, 0)


def frame(number: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": [number]})


def numbers(frames: list[pa.RecordBatch]) -> list[int]:
    return [each.column(0)[0].as_py() for each in frames]


def test_frames_come_in_the_order_of_their_parts_and_once() -> None:
    parts = StagedParts()
    parts.hold(key(1), 1, [frame(3)])
    parts.hold(key(1), 0, [frame(1), frame(2)])
    parts.hold(key(1, attempt=8), 0, [frame(9)])
    assert numbers(parts.take(key(1), 2)) == [1, 2, 3]
    with pytest.raises(StateServerError, match="2 of 2 parts did not arrive"):
        parts.take(key(1), 2)
    assert parts.take(key(2), 0) == [], "most stages have none"


def test_a_part_that_is_missing_is_noticed() -> None:
    parts = StagedParts()
    parts.hold(key(1), 0, [frame(1)])
    parts.hold(key(1), 2, [frame(3)])
    with pytest.raises(StateServerError, match="attempt 7 1 of 3 parts"):
        parts.take(key(1), 3)


def test_parts_go_with_their_epoch() -> None:
    parts = StagedParts()
    for epoch in (1, 2, 3):
        parts.hold(key(epoch), 0, [frame(epoch)])
    parts.forget(2)
    assert numbers(parts.take(key(3), 1)) == [3]
    with pytest.raises(StateServerError):
        parts.take(key(2), 1)
    parts.forget(1)
    parts.hold(key(2), 0, [frame(2)])
    with pytest.raises(StateServerError):
        parts.take(key(2), 1)
