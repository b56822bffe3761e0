"""Processes and their tasks, of which one runs at a time, in the order of a seed; a clock that jumps.

A task is a greenlet. It runs until it comes to a *point*: every operation on a disk or a store, every message, lock and
wait is one. There the scheduler may let another task go first, move the clock, or do what ``fault`` says: end a
process, freeze it. Nothing else decides what happens, so the same seed gives the same run, and ``trace`` the same
number.

A process that is ended unwinds its tasks by ``Killed``. While they unwind, every point raises it again: so no handler
of the code under test does anything more to the world. A frozen process stands still until it is thawed: it knows
nothing of the time between.

Time moves where nothing else can happen, and now and then where it could: then the tasks that are ready are slow.
"""

from __future__ import annotations

import heapq
import random
import threading
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

LINES_KEPT = 2000
SWITCH = 0.25
"""How often a point lets another task go first."""
SLOW = 0.02
"""How often time moves on although a task is ready."""
SLOW_S_MAX = 60.0
"""By no more than this: a task that is ready does not wait for an hour."""


class Killed(GreenletExit):
    """The process ends here. Not an ``Exception``, and raised again at every point."""


class Violation(BaseException):
    """An invariant does not hold. No handler of the code under test may take it for its own."""


class Process:
    """Something that can die: a driver, a server."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.frozen = False
        self.stood_still = False  # at some time
        self.tasks: dict[Task, None] = {}
        self.parked: list[Task] = []  # ready, and frozen
        self.at_death: list[Callable[[], None]] = []


class Task:
    def __init__(self, process: Process, name: str, call: Callable[[], None], hub: greenlet) -> None:
        self.process = process
        self.name = name
        self.greenlet = greenlet(call, hub)
        self.waits = 0  # how often it has waited: tells a wake-up for an earlier wait
        self.waiting = False
        self.woken = False


Queue = list[tuple[Task, int]]


class Scheduler:
    def __init__(self, seed: int, limit_s: float) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.steps = 0
        self.trace = 0
        self.lines: deque[tuple[float, str, str, str]] = deque(maxlen=LINES_KEPT)
        self.current: Task | None = None
        self.violation: Violation | None = None
        self.fault_at = -1  # the step at which ``fault`` is called
        self.fault: Callable[[], None] = lambda: None
        self.look: Callable[[str], None] | None = None  # called at each point
        self._limit_s = limit_s
        self._hub = getcurrent()
        self._thread = threading.get_ident()
        self._ready: list[Task] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer = 0

    @property
    def runs_here(self) -> bool:
        """Whether this thread is the one that runs the simulation. Others, of tests before, know nothing of it."""
        return threading.get_ident() == self._thread

    # Processes -------------------------------------------------------------------------------------------------------

    def start(self, process: Process, name: str, call: Callable[..., object], *args: Any) -> Task:
        """A new task of the process. What it raises is its caller's to keep: here it is lost."""

        def run() -> None:
            try:
                call(*args)
            except Violation as violation:
                self.violation = self.violation or violation
            except Exception as error:
                self.note(f"ended by {type(error).__name__}")
            finally:
                process.tasks.pop(task, None)

        task = Task(process, name, run, self._hub)
        if not process.dead:
            process.tasks[task] = None
            self._make_ready(task)
        return task

    def kill(self, process: Process) -> None:
        """Only from the hub: by ``fault``, or by what ``later`` calls."""
        if process.dead:
            return
        process.dead = True
        self.say(process.name, "", "killed")
        tasks, process.tasks, process.parked = process.tasks, {}, []
        for task in tasks:
            self.current = task
            task.waiting = False
            task.greenlet.throw(Killed)
        self.current = None
        if any(task in tasks for task in self._ready):
            self._ready = [task for task in self._ready if task not in tasks]
        for each in process.at_death:
            each()

    def freeze(self, process: Process) -> None:
        process.frozen = process.stood_still = True
        self.say(process.name, "", "frozen")
        process.parked = [task for task in self._ready if task.process is process]
        self._ready = [task for task in self._ready if task.process is not process]

    def thaw(self, process: Process) -> None:
        if process.frozen and not process.dead:
            process.frozen = False
            self.say(process.name, "", "thawed")
            self._ready += process.parked
            process.parked = []

    # What tasks call -------------------------------------------------------------------------------------------------

    def point(self, what: str) -> None:
        """Anything may happen here."""
        task = self.current
        assert task is not None
        if task.process.dead:
            raise Killed
        self.steps += 1
        self.say(task.process.name, task.name, what)
        if self.look is not None:
            self.look(what)
        if self.steps == self.fault_at or self.random.random() < SWITCH:
            self._ready.append(task)
            self._hub.switch()

    def sleep(self, seconds: float) -> None:
        self.wait([], seconds)

    def wait(self, queue: Queue, timeout: float | None = None) -> bool:
        """Wait until somebody wakes the queue; whether that happened in time."""
        task = self.current
        assert task is not None
        if task.process.dead:
            raise Killed
        task.waits += 1
        task.waiting, task.woken = True, False
        ticket = (task, task.waits)
        queue.append(ticket)
        if timeout is not None:
            self.later(timeout, lambda: self._resume(ticket, False))
        self._hub.switch()
        return task.woken

    def wake(self, queue: Queue) -> None:
        tickets = queue[:]
        queue.clear()
        for ticket in tickets:
            self._resume(ticket, True)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call it from the hub when the time has come: it must not wait."""
        self._timer += 1
        heapq.heappush(self._timers, (self.now + seconds, self._timer, call))

    def note(self, what: str) -> None:
        """A line of the trace that is no point."""
        task = self.current
        self.say(task.process.name if task else "", task.name if task else "", what)

    def say(self, process: str, task: str, what: str) -> None:
        self.lines.append((self.now, process, task, what))
        self.trace = zlib.crc32(f"{process} {task} {what}".encode(), self.trace)

    def failed(self, why: str) -> Violation:
        """For who finds that something is wrong, to raise: the process in which it happens does nothing more."""
        violation = Violation(why)
        self.violation = self.violation or violation
        if self.current is not None:
            self.current.process.dead = True
        return violation

    # The hub ---------------------------------------------------------------------------------------------------------

    def run(self, until: Callable[[], bool]) -> None:
        """Run until that is so. Raises ``Violation`` where something is wrong, or where nothing comes of it."""
        try:
            while self.violation is None and not until():
                self._one()
        except Violation as violation:
            self.violation = violation
        if self.violation is not None:
            raise self.violation

    def close(self) -> None:
        """End whatever is left, without a trace."""
        for task in self._ready:
            self._end(task)
        self._ready, self._timers = [], []

    def end(self, process: Process) -> None:
        """As ``kill``, when all is over."""
        process.dead = True
        for task in list(process.tasks):
            self._end(task)

    def _end(self, task: Task) -> None:
        task.process.dead = True
        self.current = task
        if task.greenlet:
            task.greenlet.throw(Killed)

    def _one(self) -> None:
        if self.steps == self.fault_at:
            self.fault_at = -1
            self.fault()
        ready = self._ready
        if ready and not (self._timers and self.random.random() < SLOW and self._timers[0][0] < self.now + SLOW_S_MAX):
            task = ready.pop(int(self.random.random() * len(ready)))
            self.current = task
            task.greenlet.switch()
            self.current = None
            return
        if not self._timers:
            raise Violation("it hangs: no task can go on and none waits for a time")
        at, _, call = heapq.heappop(self._timers)
        if at > self._limit_s:
            raise Violation(f"it hangs: nothing has come of it after {self._limit_s:.0f} s")
        self.now = max(self.now, at)
        call()

    def _resume(self, ticket: tuple[Task, int], woken: bool) -> None:
        task, wait = ticket
        if task.waiting and task.waits == wait:
            task.waiting, task.woken = False, woken
            self._make_ready(task)

    def _make_ready(self, task: Task) -> None:
        if task.process.frozen:
            task.process.parked.append(task)
        elif not task.process.dead:
            self._ready.append(task)
