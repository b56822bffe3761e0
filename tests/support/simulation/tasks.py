"""Locks, events and workers of ``tailrace.env.tasks``, and its clock, over the scheduler.

Each belongs to the process whose task has made it, and is gone with it. Threads that tests before have left get those
of the system: a step of theirs would be one of the simulation, and no seed would be the same again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from support.simulation.scheduler import Killed, Process, Queue, Scheduler, Task, Violation
from support.simulation.wall_clock import WallClock
from tailrace.env import clock, tasks


class SimLock:
    def __init__(self, scheduler: Scheduler, reentrant: bool) -> None:
        self._scheduler = scheduler
        self._reentrant = reentrant
        self._owner: Task | None = None
        self._depth = 0
        self._queue: Queue = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = self._scheduler
        if self._reentrant and self._owner is scheduler.current:
            self._depth += 1
            return True
        scheduler.point("lock")
        deadline = None if timeout < 0 else scheduler.now + timeout
        while self._owner is not None:
            if not blocking or (deadline is not None and scheduler.now >= deadline):
                return False
            scheduler.wait(self._queue, None if deadline is None else deadline - scheduler.now)
        self._owner, self._depth = scheduler.current, 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._scheduler.wake(self._queue)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: Any) -> None:
        self.release()


class SimEvent:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._set = False
        self._queue: Queue = []

    def set(self) -> None:
        self._set = True
        self._scheduler.wake(self._queue)

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        self._scheduler.point("wait")
        if not self._set:
            self._scheduler.wait(self._queue, timeout)
        return self._set


class SimCall:
    """Work that was handed over, and what has come of it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._queue: Queue = []
        self._done = False
        self._result: Any = None
        self._error: BaseException | None = None

    def work(self, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        try:
            self.end(call(*args), None)
        except (Killed, Violation):
            raise
        except BaseException as error:
            self.end(None, error)

    def end(self, result: Any, error: BaseException | None) -> None:
        if not self._done:
            self._done, self._result, self._error = True, result, error
            self._scheduler.wake(self._queue)

    def done(self) -> bool:
        return self._done

    def result(self, timeout: float | None = None) -> Any:
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self._done:
            self._scheduler.point("result")
        if not self._done:
            self._scheduler.wait(self._queue, timeout)
        if not self._done:
            self._scheduler.point("in vain")  # it may end before its caller looks again
            raise TimeoutError
        return self._error


class SimWorker:
    """So many tasks at most; they end where there is nothing to do."""

    def __init__(self, scheduler: Scheduler, process: Process, name: str, threads: int) -> None:
        self._scheduler = scheduler
        self._process = process
        self._name = name
        self._threads = threads
        self._busy = 0
        self._calls: deque[tuple[SimCall, Callable[..., Any], tuple[Any, ...]]] = deque()
        self._closed = False
        self._idle: Queue = []

    def submit(self, call: Callable[..., Any], /, *args: Any) -> SimCall:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        made = SimCall(self._scheduler)
        self._calls.append((made, call, args))
        if self._busy < self._threads:
            self._busy += 1
            self._scheduler.start(self._process, self._name, self._work)
        self._scheduler.point("submit")
        return made

    def shutdown(self, wait: bool = True) -> None:
        self._closed = True
        while wait and (self._busy or self._calls):
            self._scheduler.wait(self._idle)

    def _work(self) -> None:
        try:
            while self._calls:
                made, call, args = self._calls.popleft()
                made.work(call, args)
        finally:
            self._busy -= 1
            self._scheduler.wake(self._idle)


class SimStarted:
    def __init__(self, scheduler: Scheduler, name: str, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        assert scheduler.current is not None
        self._call = SimCall(scheduler)
        scheduler.start(scheduler.current.process, name, self._call.work, call, args)

    def is_alive(self) -> bool:
        return not self._call.done()

    def join(self, timeout: float | None = None) -> None:
        try:
            self._call.exception(timeout)
        except TimeoutError:
            pass


class SimTasks:
    """``tailrace.env.tasks.Tasks``, for the process of the task that asks."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def lock(self) -> tasks.Lock:
        return SimLock(self._scheduler, reentrant=False) if self._scheduler.runs_here else tasks.SYSTEM.lock()

    def reentrant_lock(self) -> tasks.Lock:
        return SimLock(self._scheduler, reentrant=True) if self._scheduler.runs_here else tasks.SYSTEM.reentrant_lock()

    def event(self) -> tasks.Event:
        return SimEvent(self._scheduler) if self._scheduler.runs_here else tasks.SYSTEM.event()

    def worker(self, name: str, threads: int) -> tasks.Worker:
        if not self._scheduler.runs_here:
            return tasks.SYSTEM.worker(name, threads)
        assert self._scheduler.current is not None
        return SimWorker(self._scheduler, self._scheduler.current.process, name, threads)

    def start(self, name: str, call: Callable[..., object], args: tuple[Any, ...]) -> tasks.Started:
        if not self._scheduler.runs_here:
            return tasks.SYSTEM.start(name, call, args)
        return SimStarted(self._scheduler, name, call, args)


class SimClock:
    """``tailrace.env.clock.Clock``: processor time passes not at all."""

    def __init__(self, scheduler: Scheduler, wall: WallClock) -> None:
        self._scheduler = scheduler
        self._wall = wall

    def now(self) -> float:
        return self._wall.now() if self._scheduler.runs_here else clock.SYSTEM.now()

    def monotonic(self) -> float:
        return self._scheduler.now if self._scheduler.runs_here else clock.SYSTEM.monotonic()

    def thread_cpu(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        if not self._scheduler.runs_here:
            clock.SYSTEM.sleep(seconds)
            return
        self._scheduler.point("sleep")
        self._scheduler.sleep(seconds)
