"""Tasks that run at the same time, and how they wait for each other: locks, events, workers.

Who may be run by the simulator of the commit gets these here and not from ``threading``: it puts others in their place,
of which one runs at a time, in the order of a seed. Locks that are held over plain memory only may be ``threading``'s.

``use`` puts another set in place for what is made from then on; for tests that run nothing else meanwhile. Everything
else is safe from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
    """Works off what it is handed: in the order in which it came, where it has one thread."""

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


class SystemTasks:
    """Threads of the system."""

    def lock(self) -> Lock:
        return threading.Lock()

    def reentrant_lock(self) -> Lock:
        return threading.RLock()

    def event(self) -> Event:
        return threading.Event()

    def worker(self, name: str, threads: int) -> Worker:
        return ThreadPoolExecutor(threads, name)

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
