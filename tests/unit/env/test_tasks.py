"""Threads of the system as tasks, and another set in their place for a while."""

from __future__ import annotations

import threading

import pytest

from tailrace.env import clock, randomness, tasks


def test_a_worker_of_one_thread_keeps_the_order() -> None:
    worker = tasks.worker("test")
    done: list[int] = []
    calls = [worker.submit(done.append, each) for each in range(20)]
    failing = worker.submit(lambda: 1 // 0)
    worker.shutdown()
    assert done == list(range(20)) and all(call.done() for call in calls)
    assert isinstance(failing.exception(), ZeroDivisionError)


def test_waiting_ends_when_its_time_is_over() -> None:
    goes_on = tasks.event()
    worker = tasks.worker("test")
    call = worker.submit(goes_on.wait)
    with pytest.raises(TimeoutError):
        call.result(0.01)
    goes_on.set()
    assert call.result(10) is True
    worker.shutdown()


def test_a_started_task_is_alive_until_it_ends() -> None:
    goes_on = tasks.event()
    started = tasks.start("test", goes_on.wait)
    assert started.is_alive()
    goes_on.set()
    started.join(10)
    assert not started.is_alive()


def test_others_are_used_until_their_end() -> None:
    class Counted(tasks.SystemTasks):
        locks = 0

        def lock(self) -> tasks.Lock:
            self.locks += 1
            return threading.Lock()

    class Stopped(clock.SystemClock):
        def monotonic(self) -> float:
            return 7.0

    counted = Counted()
    with tasks.use(counted), clock.use(Stopped()), randomness.use(lambda count: "0" * 2 * count):
        tasks.lock()
        assert clock.monotonic() == 7.0
        assert randomness.short_id() == "00000000"
    tasks.lock()
    assert counted.locks == 1
    assert clock.monotonic() != 7.0
    assert randomness.short_id() != "00000000"
