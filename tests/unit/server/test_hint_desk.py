"""The hint desk: at once where the engine is free, soon where it is not, and never an error for who hands in."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tailrace.server.hints import HintDesk


@pytest.fixture
def engine() -> threading.RLock:
    return threading.RLock()


@pytest.fixture
def desk(engine: threading.RLock) -> Iterator[HintDesk]:
    made = HintDesk(engine, {}, lambda seat, epoch: True)
    yield made
    made.close()


def test_hints_are_told_at_once_where_the_engine_is_free(desk: HintDesk) -> None:
    told: list[threading.Thread] = []
    desk.tell(lambda: told.append(threading.current_thread()))
    assert told == [threading.current_thread()]


def test_hints_wait_for_nobody(desk: HintDesk, engine: threading.RLock) -> None:
    """While the engine is at something else they are told by the desk's own thread, once it is free."""
    held, release, told = threading.Event(), threading.Event(), threading.Event()

    def busy() -> None:
        with engine:
            held.set()
            release.wait(10)

    other = threading.Thread(target=busy)
    other.start()
    try:
        assert held.wait(10)
        desk.tell(told.set)
        assert not told.is_set(), "the engine is not free"
    finally:
        release.set()
        other.join(10)
    assert told.wait(10)


def test_work_is_done_under_the_engines_lock(desk: HintDesk, engine: threading.RLock) -> None:
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

    desk.tell(work)
    desk.hand_in(work)
    assert done.wait(10) and free == [False, False]


def test_what_fails_is_counted_and_told_to_nobody(desk: HintDesk) -> None:
    def fails() -> None:
        raise ValueError("no such key")

    done = threading.Event()
    desk.tell(fails)
    desk.hand_in(fails)
    desk.hand_in(done.set)
    assert done.wait(10) and desk.dropped == 2
    desk.tell(lambda: None)


def test_a_closed_desk_takes_nothing(engine: threading.RLock) -> None:
    desk = HintDesk(engine, {}, lambda seat, epoch: True)
    told: list[int] = []
    desk.close()
    desk.tell(lambda: told.append(1))
    desk.hand_in(lambda: told.append(2))
    assert not told


def test_who_holds_the_engine_for_long_lets_hints_be_told_in_between(desk: HintDesk, engine: threading.RLock) -> None:
    told: list[threading.Thread] = []
    with engine:
        handed = threading.Thread(target=lambda: desk.tell(lambda: told.append(threading.current_thread())))
        handed.start()
        handed.join(10)
        assert not told
        desk.catch_up()
        assert told == [threading.current_thread()]
    desk.catch_up()
    assert len(told) == 1


class _Seat:
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
def test_frames_that_come_while_others_wait_are_told_together(engine: threading.RLock, takes: bool) -> None:
    seat = _Seat()
    desk = HintDesk(engine, {"o": seat}, lambda *_: takes, gather=lambda operator, frames: [tuple(frames)])  # type: ignore[dict-item]
    try:
        with engine:
            for frame in "abc":
                desk.show("o", frame, 7)
            desk.show("o", "d", 8)
            assert not seat.heard, "nobody waits until they are told"
            desk.catch_up()
            assert seat.heard == ([(("a", "b", "c"), 7), (("d",), 8)] if takes else [])
            seat.done.clear()
        desk.show("o", "e", 7)
        assert seat.done.wait(10 if takes else 0.05) == takes, "what was not taken is not in the way"
        assert not takes or seat.heard[-1] == (("e",), 7)
    finally:
        desk.close()
