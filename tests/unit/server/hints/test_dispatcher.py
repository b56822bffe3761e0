"""Frames whose tasks still go on: their keys are hinted together, and only where they still come in time."""

from __future__ import annotations

import threading

import pytest

from tailrace.server.hints.dispatcher import HintDispatcher
from tailrace.server.hints.queue import HintQueue


class _Runner:
    """Of an operator that takes hints."""

    def __init__(self) -> None:
        self.operator = self
        self.heard: list[tuple[object, int]] = []
        self.done = threading.Event()

    def wants_hints(self) -> bool:
        return True

    def hint_frame(self, frame: object, epoch: int) -> None:
        self.heard.append((frame, epoch))
        self.done.set()

    def hint_keys(self, keys: object, epoch: int) -> None:
        raise AssertionError("no keys were sent")


@pytest.mark.parametrize("takes", [True, False])
def test_frames_that_come_while_others_wait_are_hinted_together(takes: bool) -> None:
    engine, runner = threading.RLock(), _Runner()
    queue = HintQueue(engine)
    dispatcher = HintDispatcher(
        queue,
        {"o": runner}.get,  # type: ignore[arg-type]
        lambda *_: takes,
        gather=lambda operator, frames: [tuple(frames)],
    )
    try:
        with engine:
            for frame in "abc":
                dispatcher.show("o", frame, 7)
            dispatcher.show("o", "d", 8)
            assert not runner.heard, "nobody waits for the work on them"
            queue.catch_up()
            assert runner.heard == ([(("a", "b", "c"), 7), (("d",), 8)] if takes else [])
            runner.done.clear()
        dispatcher.show("o", "e", 7)
        assert runner.done.wait(10 if takes else 0.05) == takes, "what was not taken is not in the way"
        assert not takes or runner.heard[-1] == (("e",), 7)
    finally:
        dispatcher.close()
