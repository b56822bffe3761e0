"""Threads of the system as tasks, and another set in their place for a while."""

from __future__ import annotations

import subprocess
import sys
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


def test_calls_beyond_the_threads_wait_for_one() -> None:
    goes_on = tasks.event()
    worker = tasks.worker("test", 2)
    calls = [worker.submit(goes_on.wait) for _ in range(2)]
    third = worker.submit(lambda: "third")
    with pytest.raises(TimeoutError):
        third.result(0.01)
    goes_on.set()
    assert third.result(10) == "third" and all(call.result(10) for call in calls)
    worker.shutdown()
    with pytest.raises(RuntimeError, match="shut down"):
        worker.submit(goes_on.wait)


AT_THE_END = """
import atexit, threading
from tailrace.env import tasks

hangs, ends = tasks.worker("hangs", 2), tasks.worker("ends")
hangs.submit(threading.Event().wait)

@atexit.register
def release():
    print(hangs.submit(lambda: "released").result(10), ends.submit(lambda: "here").result(10))
"""


def test_a_call_that_hangs_does_not_keep_the_process_and_others_are_taken_to_its_end() -> None:
    done = subprocess.run([sys.executable, "-c", AT_THE_END], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "released here\n", "")


def test_where_no_thread_can_be_started_the_caller_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an interpreter that ends has it, from Python 3.12 on."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    worker = tasks.worker("test")
    assert worker.submit(threading.current_thread).result(0) is threading.current_thread()
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
