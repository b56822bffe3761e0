"""The hint desk: at once where the engine is free, soon where it is not, and never an error for who hands in."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tailrace.server.hints.dispatcher import HintDispatcher


@pytest.fixture
def engine() -> threading.RLock:
    return threading.RLock()


@pytest.fixture
def dispatcher(engine: threading.RLock) -> Iterator[HintDispatcher]:
    made = HintDispatcher(engine, {}, lambda runner, epoch: True)
    yield made
    made.close()


def test_hints_are_delivered_at_once_where_the_engine_is_free(dispatcher: HintDispatcher) -> None:
    told: list[threading.Thread] = []
    dispatcher.tell(lambda: told.append(threading.current_thread()))
    assert told == [threading.current_thread()]


def test_hints_wait_for_nobody(dispatcher: HintDispatcher, engine: threading.RLock) -> None:
    """While the engine is at something else they are delivered by the dispatcher's own thread, once it is free."""
    held, release, told = threading.Event(), threading.Event(), threading.Event()

    def busy() -> None:
        with engine:
            held.set()
            release.wait(10)

    other = threading.Thread(target=busy)
    other.start()
    try:
        assert held.wait(10)
        dispatcher.tell(told.set)
        assert not told.is_set(), "the engine is not free"
    finally:
        release.set()
        other.join(10)
    assert told.wait(10)


def test_work_is_done_under_the_engines_lock(dispatcher: HintDispatcher, engine: threading.RLock) -> None:
    free: list[bool] = []
    done = threading.Event()

    def work() -> None:
        def look() -> None:
            free.append(engine.acquire(blocking=False))

        other = threading.Thread(target=look)
        other.start()
        other.join(10)
        if len(free) == 2:
            done.set()

    dispatcher.tell(work)
    dispatcher.hand_in(work)
    assert done.wait(10) and free == [False, False]


def test_what_fails_is_counted_and_reported_to_nobody(dispatcher: HintDispatcher) -> None:
    def fails() -> None:
        raise ValueError("no such key")

    done = threading.Event()
    dispatcher.tell(fails)
    dispatcher.hand_in(fails)
    dispatcher.hand_in(done.set)
    assert done.wait(10) and dispatcher.dropped == 2
    dispatcher.tell(lambda: None)


def test_a_closed_desk_takes_nothing(engine: threading.RLock) -> None:
    dispatcher = HintDispatcher(engine, {}, lambda runner, epoch: True)
    told: list[int] = []
    dispatcher.close()
    dispatcher.tell(lambda: told.append(1))
    dispatcher.hand_in(lambda: told.append(2))
    assert not told


def test_who_holds_the_engine_for_long_lets_hints_be_delivered_in_between(
    dispatcher: HintDispatcher, engine: threading.RLock
) -> None:
    told: list[threading.Thread] = []
    with engine:
        handed = threading.Thread(target=lambda: dispatcher.tell(lambda: told.append(threading.current_thread())))
        handed.start()
        handed.join(10)
        assert not told
        dispatcher.catch_up()
        assert told == [threading.current_thread()]
    dispatcher.catch_up()
    assert len(told) == 1


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

    def hint_keys(self, told: object, epoch: int) -> None:
        raise AssertionError("nobody has told keys")


@pytest.mark.parametrize("takes", [True, False])
def test_frames_that_come_while_others_wait_are_delivered_together(engine: threading.RLock, takes: bool) -> None:
    runner = _Runner()
    dispatcher = HintDispatcher(
        engine, {"o": runner}, lambda *_: takes, gather=lambda operator, frames: [tuple(frames)]
    )  # type: ignore[dict-item]
    try:
        with engine:
            for frame in "abc":
                dispatcher.show("o", frame, 7)
            dispatcher.show("o", "d", 8)
            assert not runner.heard, "nobody waits until they are told"
            dispatcher.catch_up()
            assert runner.heard == ([(("a", "b", "c"), 7), (("d",), 8)] if takes else [])
            runner.done.clear()
        dispatcher.show("o", "e", 7)
        assert runner.done.wait(10 if takes else 0.05) == takes, "what was not taken is not in the way"
        assert not takes or runner.heard[-1] == (("e",), 7)
    finally:
        dispatcher.close()
