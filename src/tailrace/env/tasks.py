"""Tasks that run at the same time, and how they wait for each other: locks, events, workers.

Who may be run by the simulator of the commit gets these here and not from ``threading``: it puts others in their place,
of which one runs at a time, in the order of a seed. Locks that are held over plain memory only may be ``threading``'s.

``use`` puts another set in place for what is made from then on; for tests that run nothing else meanwhile. Everything
else is safe from any thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from tailrace.env.replaceable import Replaceable

_Answer = TypeVar("_Answer")
_Answer_co = TypeVar("_Answer_co", covariant=True)


class Lock(Protocol):
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
    def release(self) -> None: ...
    def __enter__(self) -> bool: ...
    def __exit__(self, *exc: Any) -> None: ...


class Event(Protocol):
    def set(self) -> None: ...
    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class Call(Protocol[_Answer_co]):
    """Work that was handed over. ``result`` and ``exception`` wait, and raise ``TimeoutError`` when that is over."""

    def done(self) -> bool: ...
    def result(self, timeout: float | None = None) -> _Answer_co: ...
    def exception(self, timeout: float | None = None) -> BaseException | None: ...


class Worker(Protocol):
    """Works off what it is handed: in the order in which it came, where it has one thread.

    A call that hangs does not keep the process from ending.
    """

    def submit(self, call: Callable[..., _Answer], /, *args: Any) -> Call[_Answer]: ...
    def shutdown(self, wait: bool = True) -> None:
        """Take nothing more; ``wait`` until all is worked off."""


class Started(Protocol):
    def is_alive(self) -> bool: ...
    def join(self, timeout: float | None = None) -> None: ...


class Tasks(Protocol):
    def lock(self) -> Lock: ...
    def reentrant_lock(self) -> Lock: ...
    def event(self) -> Event: ...
    def worker(self, name: str, threads: int) -> Worker: ...
    def start(self, name: str, call: Callable[..., object], args: tuple[Any, ...]) -> Started: ...


class DaemonWorker:
    """Threads of the system that never keep the process from ending, whatever they wait for.

    Those of ``ThreadPoolExecutor`` do: the interpreter waits for them at its end, and that executor takes no call from
    then on. But queries are released at that very time, and one of their calls may hang for as long as its server does.

    Threads are started as they are needed, up to ``threads``. Where the interpreter, at its end, starts none any more
    and there is none yet, a call is done by who hands it over.
    """

    def __init__(self, name: str, threads: int) -> None:
        self._name, self._threads_max = name, threads
        self._changed = threading.Condition()
        self._calls: deque[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = deque()
        self._threads = self._idle = 0
        self._closed = False

    def submit(self, call: Callable[..., _Answer], /, *args: Any) -> Call[_Answer]:
        made: Future[_Answer] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError(f"{self._name} was shut down and takes no more calls")
            self._calls.append((made, call, args))
            if self._idle < len(self._calls) and self._threads < self._threads_max:
                self._start_thread()
            self._changed.notify()
            alone = not self._threads
        if alone:
            self._work_off()
        return made

    def shutdown(self, wait: bool = True) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            while wait and self._threads:
                self._changed.wait()

    def _start_thread(self) -> None:
        number = self._threads
        try:
            threading.Thread(target=self._run, name=f"{self._name}-{number}", daemon=True).start()
        except RuntimeError:  # the interpreter ends, or the system has no more threads
            return
        self._threads += 1

    def _run(self) -> None:
        while True:
            self._work_off()
            with self._changed:
                if not self._calls and not self._closed:
                    self._idle += 1
                    self._changed.wait()
                    self._idle -= 1
                if self._closed and not self._calls:
                    self._threads -= 1
                    self._changed.notify_all()
                    return

    def _work_off(self) -> None:
        while True:
            with self._changed:
                if not self._calls:
                    return
                made, call, args = self._calls.popleft()
            try:
                made.set_result(call(*args))
            except BaseException as error:
                made.set_exception(error)
            del made, call, args  # what they hold must not wait for the next call


class SystemTasks:
    """Threads of the system."""

    def lock(self) -> Lock:
        return threading.Lock()

    def reentrant_lock(self) -> Lock:
        return threading.RLock()

    def event(self) -> Event:
        return threading.Event()

    def worker(self, name: str, threads: int) -> Worker:
        return DaemonWorker(name, threads)

    def start(self, name: str, call: Callable[..., object], args: tuple[Any, ...]) -> Started:
        thread = threading.Thread(target=call, args=args, name=name, daemon=True)
        thread.start()
        return thread


SYSTEM = SystemTasks()
_tasks = Replaceable[Tasks](SYSTEM)
use = _tasks.use


def lock() -> Lock:
    return _tasks.current.lock()


def reentrant_lock() -> Lock:
    return _tasks.current.reentrant_lock()


def event() -> Event:
    return _tasks.current.event()


def worker(name: str, threads: int = 1) -> Worker:
    return _tasks.current.worker(name, threads)


def start(name: str, call: Callable[..., object], *args: Any) -> Started:
    """Run the call in a thread of its own, which does not keep the process from ending."""
    return _tasks.current.start(name, call, args)
