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
