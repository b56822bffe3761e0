"""Hints are worked on at once where the engine is free, soon where it is not; whoever hands one in gets no error."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tailrace.server.hints.queue import HintQueue


@pytest.fixture
def engine() -> threading.RLock:
    return threading.RLock()


@pytest.fixture
def queue(engine: threading.RLock) -> Iterator[HintQueue]:
    made = HintQueue(engine)
    yield made
    made.close()


def test_hints_are_worked_on_at_once_where_the_engine_is_free(queue: HintQueue) -> None:
    workers: list[threading.Thread] = []
    queue.run(lambda: workers.append(threading.current_thread()))
    assert workers == [threading.current_thread()]


def test_hints_wait_for_nobody(queue: HintQueue, engine: threading.RLock) -> None:
    """While the engine is at something else they wait for the queue's own thread, once it is free."""
    held, release, worked = threading.Event(), threading.Event(), threading.Event()

    def busy() -> None:
        with engine:
            held.set()
            release.wait(10)

    other = threading.Thread(target=busy)
    other.start()
    try:
        assert held.wait(10)
        queue.run(worked.set)
        assert not worked.is_set(), "the engine is not free"
    finally:
        release.set()
        other.join(10)
    assert worked.wait(10)


def test_work_is_done_under_the_engines_lock(queue: HintQueue, engine: threading.RLock) -> None:
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

    queue.run(work)
    queue.add(work)
    assert done.wait(10) and free == [False, False]


def test_what_fails_is_counted_logged_once_and_raised_nowhere(
    queue: HintQueue, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> None:
        raise ValueError("no such key")

    def fails_otherwise() -> None:
        raise OSError("no such file")

    done = threading.Event()
    queue.run(fails)
    queue.add(fails)
    queue.add(fails_otherwise)
    queue.add(done.set)
    assert done.wait(10) and (queue.failed, queue.dropped) == (3, 0)
    queue.run(lambda: None)
    said = [str(record.exc_info[1]) for record in caplog.records if record.exc_info is not None]
    assert said == ["no such key", "no such file"]


def test_a_closed_queue_takes_nothing(engine: threading.RLock) -> None:
    queue = HintQueue(engine)
    worked: list[int] = []
    queue.close()
    queue.run(lambda: worked.append(1))
    queue.add(lambda: worked.append(2))
    assert not worked


def test_whoever_holds_the_engine_for_long_lets_hints_in(queue: HintQueue, engine: threading.RLock) -> None:
    workers: list[threading.Thread] = []
    with engine:
        handed = threading.Thread(target=lambda: queue.run(lambda: workers.append(threading.current_thread())))
        handed.start()
        handed.join(10)
        assert not workers
        queue.catch_up()
        assert workers == [threading.current_thread()]
    queue.catch_up()
    assert len(workers) == 1
